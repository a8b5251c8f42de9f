package main

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"flag"
	"sort"
	"strings"
)

var (
	user   = flag.String("user", "", "account that signs the requests")
	secret = flag.String("secret", "", "its secret")
)

// signed adds account and signature to a header: HMAC-SHA1 of the values of the fields, by name, and the body.
func signed(header string, body []byte) string {
	var asked struct {
		ExtFields map[string]string `json:"extFields"`
	}
	if err := json.Unmarshal([]byte(header), &asked); err != nil {
		panic(err)
	}
	fields := asked.ExtFields
	fields["AccessKey"] = *user
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	sort.Strings(names)
	mac := hmac.New(sha1.New, []byte(*secret))
	for _, name := range names {
		mac.Write([]byte(fields[name]))
	}
	mac.Write(body)
	signature := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	const start = `"extFields":{`
	return strings.Replace(header, start, start+`"AccessKey":"`+*user+`","Signature":"`+signature+`",`, 1)
}
