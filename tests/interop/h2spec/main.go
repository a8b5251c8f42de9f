// Runs h2spec against HOST PORT, strictly, and writes what came of it to the file REPORT (JUnit).
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"
)

func main() {
	port, err := strconv.Atoi(os.Args[2])
	if err == nil {
		_, err = h2spec.Run(&config.Config{
			Host:         os.Args[1],
			Port:         port,
			Path:         "/",
			Timeout:      10 * time.Second,
			MaxHeaderLen: 4000,
			JUnitReport:  os.Args[3],
			Strict:       true,
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
