// Pops: each connection takes messages, acknowledges all of them, and only then takes more. Modes: pop (one BATCH_ACK for
// a pop), popack (an ACK for each message, all of a pop under way at once).
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"strconv"
	"strings"
	"time"
)

const brokerName = "broker-a"

type popper struct {
	w      *bufio.Writer
	r      *bufio.Reader
	opaque int
	group  string
	body   int64
}

func newPopper(c net.Conn) *popper {
	return &popper{w: bufio.NewWriterSize(c, 1<<17), r: bufio.NewReaderSize(c, 1<<17)}
}

func (p *popper) write(code int, fields string, body []byte) {
	p.opaque++
	h := fmt.Sprintf(`{"code":%d,"extFields":{%s},"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":479}`, code, fields, p.opaque)
	p.w.Write(frame(h, body))
}

func (p *popper) read() (rs resp, body []byte, err error) {
	head, body, err := readFrame(p.r)
	if err == nil {
		err = json.Unmarshal(head, &rs)
	}
	return rs, body, err
}

// take pops; a group that has had everything is followed by a new one.
func (p *popper) take() (resp, error) {
	p.write(200050, fmt.Sprintf(`"consumerGroup":"%s","topic":"%s","queueId":"-1","maxMsgNums":"%d","invisibleTime":"60000","pollTime":"0","bornTime":"%d","initMode":"0","expType":"TAG","exp":"*","order":"false"`, p.group, *topic, *batch, time.Now().UnixMilli()), nil)
	p.w.Flush()
	rs, body, err := p.read()
	p.body += int64(len(body))
	return rs, err
}

type popped struct {
	qid, start string
	offsets    []string
}

func parts(rs resp) []popped {
	starts := map[string]string{}
	for _, e := range strings.Split(rs.ExtFields["startOffsetInfo"], ";") {
		f := strings.Fields(e)
		starts[f[1]] = f[2]
	}
	var found []popped
	for _, e := range strings.Split(rs.ExtFields["msgOffsetInfo"], ";") {
		f := strings.Fields(e)
		found = append(found, popped{f[1], starts[f[1]], strings.Split(f[2], ",")})
	}
	return found
}

func (p *popper) ackBatch(rs resp) int {
	var acks []string
	for _, one := range parts(rs) {
		start, _ := strconv.ParseInt(one.start, 10, 64)
		set := new(big.Int)
		for _, o := range one.offsets {
			at, _ := strconv.ParseInt(o, 10, 64)
			set.SetBit(set, int(at-start), 1)
		}
		raw := set.Bytes()
		for i, j := 0, len(raw)-1; i < j; i, j = i+1, j-1 {
			raw[i], raw[j] = raw[j], raw[i]
		}
		x := rs.ExtFields
		acks = append(acks, fmt.Sprintf(`{"b":"%s","c":"%s","it":%s,"pt":%s,"q":%s,"r":"0","rq":%s,"so":%s,"t":"%s"}`, base64.StdEncoding.EncodeToString(raw), p.group, x["invisibleTime"], x["popTime"], one.qid, x["reviveQid"], one.start, *topic))
	}
	p.write(200151, "", []byte(`{"acks":[`+strings.Join(acks, ",")+`],"brokerName":"`+brokerName+`"}`))
	return 1
}

func (p *popper) ackEach(rs resp) (n int) {
	x := rs.ExtFields
	for _, one := range parts(rs) {
		for _, o := range one.offsets {
			p.write(200051, fmt.Sprintf(`"consumerGroup":"%s","topic":"%s","queueId":"%s","extraInfo":"%s %s %s %s 0 `+brokerName+` %s %s","offset":"%s"`, p.group, *topic, one.qid, one.start, x["popTime"], x["invisibleTime"], x["reviveQid"], one.qid, o, o), nil)
			n++
		}
	}
	return n
}

// popLoop goes on until stopped; done is told the messages of each pop once all of them are acknowledged.
func popLoop(c net.Conn, ci int, stop chan struct{}, done func(n int64, took time.Duration), failed func(string)) {
	p := newPopper(c)
	for round := 0; ; round++ {
		p.group = fmt.Sprintf("pop_%d_%d", ci, round)
		for {
			select {
			case <-stop:
				c.Close()
				return
			default:
			}
			t0 := time.Now()
			rs, err := p.take()
			if err != nil {
				failed(err.Error())
				return
			}
			if rs.Code == 210 {
				break
			}
			if rs.Code != 0 {
				failed(fmt.Sprintf("code %d %s", rs.Code, rs.Remark))
				continue
			}
			messages := 0
			for _, one := range parts(rs) {
				messages += len(one.offsets)
			}
			var waits int
			if *mode == "pop" {
				waits = p.ackBatch(rs)
			} else {
				waits = p.ackEach(rs)
			}
			p.w.Flush()
			for ; waits > 0; waits-- {
				rs, _, err = p.read()
				if err != nil || rs.Code != 0 {
					failed(fmt.Sprintf("ack: code %d %s", rs.Code, rs.Remark))
				}
			}
			done(int64(messages), time.Since(t0))
		}
	}
}
