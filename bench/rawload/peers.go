// The same sends to two other servers, for scale: XADD to streams of Redis, and publishing to a stream of NATS JetStream,
// which acknowledges each message. Both answer a connection in order, so that times are a queue.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

const inbox = "_INBOX.rawload.%d.%d"

// stranger is one connection to a server that is no broker of RocketMQ.
type stranger struct {
	r    *bufio.Reader
	w    *bufio.Writer
	id   int
	sent int
	body []byte
}

type speaker interface {
	greet() error
	send()
	answer() error
}

// strangerLoop keeps depth sends in flight until stop, and tells of each answer.
func strangerLoop(c net.Conn, id int, body []byte, stop chan struct{}, done func(int64, time.Duration), failed func(string)) {
	p := stranger{r: bufio.NewReaderSize(c, 1<<17), w: bufio.NewWriterSize(c, 1<<17), id: id, body: body}
	var s speaker = &redis{&p}
	if *speak == "nats" {
		s = &nats{&p}
	}
	if err := s.greet(); err != nil {
		failed(err.Error())
		return
	}
	starts := make([]time.Time, *depth)
	for i := range starts {
		starts[i] = time.Now()
		s.send()
	}
	for at := 0; ; at = (at + 1) % *depth {
		if p.r.Buffered() == 0 {
			p.w.Flush()
		}
		if err := s.answer(); err != nil {
			failed(err.Error())
			return
		}
		done(1, time.Since(starts[at]))
		select {
		case <-stop:
			c.Close()
			return
		default:
		}
		starts[at] = time.Now()
		s.send()
	}
}

// turn is the number of the stream or subject whose turn it is: as many as a topic has queues.
func (p *stranger) turn() int {
	p.sent++
	return (p.id + p.sent) % *queues
}

func (p *stranger) line() ([]byte, error) {
	line, err := p.r.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}

type redis struct{ *stranger }

func (s *redis) greet() error { return nil }

func (s *redis) send() {
	key := *topic + "-" + strconv.Itoa(s.turn())
	fmt.Fprintf(s.w, "*5\r\n$4\r\nXADD\r\n$%d\r\n%s\r\n$1\r\n*\r\n$1\r\nb\r\n$%d\r\n", len(key), key, len(s.body))
	s.w.Write(s.body)
	s.w.WriteString("\r\n")
}

func (s *redis) answer() error {
	line, err := s.line()
	if err != nil {
		return err
	}
	if len(line) == 0 || line[0] != '$' {
		return fmt.Errorf("redis: %s", line)
	}
	_, err = s.line()
	return err
}

type nats struct{ *stranger }

func (s *nats) greet() error {
	if _, err := s.line(); err != nil {
		return err
	}
	fmt.Fprintf(s.w, "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"go\",\"protocol\":1}\r\nSUB "+inbox[:len(inbox)-2]+"* 1\r\n", s.id)
	// A subject is a word between dots: the stream takes all that its one wildcard matches.
	create := fmt.Sprintf(`{"name":"%s","subjects":["%s.*"],"storage":"file","retention":"limits","num_replicas":1}`, *topic, *topic)
	fmt.Fprintf(s.w, "PUB $JS.API.STREAM.CREATE.%s "+inbox+" %d\r\n%s\r\n", *topic, s.id, 0, len(create), create)
	s.w.Flush()
	return s.answer()
}

func (s *nats) send() {
	fmt.Fprintf(s.w, "PUB %s.%d "+inbox+" %d\r\n", *topic, s.turn(), s.id, s.sent, len(s.body))
	s.w.Write(s.body)
	s.w.WriteString("\r\n")
}

// answer reads up to the next acknowledgement; a PING on the way is answered.
func (s *nats) answer() error {
	for {
		line, err := s.line()
		if err != nil {
			return err
		}
		switch {
		case bytes.HasPrefix(line, []byte("PING")):
			s.w.WriteString("PONG\r\n")
			s.w.Flush()
		case bytes.HasPrefix(line, []byte("MSG ")):
			size, _ := strconv.Atoi(string(line[bytes.LastIndexByte(line, ' ')+1:]))
			said := make([]byte, size+2)
			if _, err := io.ReadFull(s.r, said); err != nil {
				return err
			}
			if bytes.Contains(said, []byte(`"error"`)) {
				return fmt.Errorf("nats: %s", said)
			}
			return nil
		case bytes.HasPrefix(line, []byte("-ERR")):
			return fmt.Errorf("nats: %s", line)
		}
	}
}
