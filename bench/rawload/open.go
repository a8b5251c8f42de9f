// The open loop: requests leave at a fixed rate, whatever has been answered. A request whose socket takes nothing for `giveUp`
// is never sent; an answer later than `patience` after the time at which the request was to leave is of no use to anybody.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	ring     = 1 << 22
	giveUp   = time.Second
	patience = 3 * time.Second
	tick     = 10 * time.Millisecond
)

type tally struct {
	offered, sent, good, late, busy, other atomic.Int64
	mu                                     sync.Mutex
	goodAfter, busyAfter                   []time.Duration
	firstOther                             atomic.Value
}

// number is the whole number behind a key of a JSON header; -1 where there is none.
func number(head []byte, key string) int {
	at := bytes.Index(head, []byte(key))
	if at < 0 {
		return -1
	}
	n := 0
	for at += len(key); at < len(head) && head[at] >= '0' && head[at] <= '9'; at++ {
		n = n*10 + int(head[at]-'0')
	}
	return n
}

func openLoop(rate float64) {
	var t tally
	var measuring atomic.Bool
	body := bytes.Repeat([]byte("x"), *size)
	began := time.Now()
	var over atomic.Bool
	var group sync.WaitGroup
	for ci := 0; ci < *conns; ci++ {
		c, err := dial()
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		due := make([]atomic.Int64, ring/(*conns)+1)
		group.Add(2)
		go func(ci int) {
			defer group.Done()
			write(c, ci, rate/float64(*conns), body, due, began, &over, &measuring, &t)
		}(ci)
		go func() {
			defer group.Done()
			read(c, due, began, &measuring, &t)
		}()
	}
	time.Sleep(time.Duration(*warm * float64(time.Second)))
	measuring.Store(true)
	c0, _ := cpuTicks(*pid)
	t0 := time.Now()
	time.Sleep(time.Duration(*secs * float64(time.Second)))
	measuring.Store(false)
	elapsed := time.Since(t0).Seconds()
	c1, rss := cpuTicks(*pid)
	over.Store(true)
	group.Wait()
	fmt.Printf("open c=%d s=%d offered/s=%.0f sent/s=%.0f good/s=%.0f busy/s=%.0f late/s=%.0f other=%d good_p50=%.1fms good_p99=%.1fms busy_p50=%.1fms busy_p99=%.1fms cores=%.2f rss_anon_mb=%d",
		*conns, *size, float64(t.offered.Load())/elapsed, float64(t.sent.Load())/elapsed, float64(t.good.Load())/elapsed, float64(t.busy.Load())/elapsed, float64(t.late.Load())/elapsed, t.other.Load(),
		at(t.goodAfter, .5), at(t.goodAfter, .99), at(t.busyAfter, .5), at(t.busyAfter, .99), (c1-c0)/elapsed, rss/1024)
	if first := t.firstOther.Load(); first != nil {
		fmt.Printf(" first_other=%v", first)
	}
	fmt.Println()
}

func at(all []time.Duration, f float64) float64 {
	if len(all) == 0 {
		return 0
	}
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return float64(all[int(f*float64(len(all)-1))].Microseconds()) / 1000
}

// template is the frame of sends; only the digits at these places change, so that a send costs a copy.
type template struct {
	frame              []byte
	queue, key, opaque int
	binary             bool
}

const (
	firstOpaque = 10_000_000
	queueDigit  = "Q"
	keyDigits   = "KEYDIGIT"
)

// newTemplate is the template of connection ci. Its signature would change with each send, so there is none.
func newTemplate(ci int, body []byte, binaryHead bool) template {
	if *user != "" {
		fail(fmt.Errorf("-r sends without -user"))
	}
	names := strings.Split("abcdefghijkm", "")
	now := time.Now().UnixMilli()
	properties := fmt.Sprintf("UNIQ_KEY\x017F000001%08X%08X%s\x02WAIT\x01true", now&0xffffffff, ci, keyDigits)
	values := []string{"pg", *topic, "TBW102", "4", queueDigit, "0", strconv.FormatInt(now, 10), "0", properties, "0", "false", "false"}
	if binaryHead {
		return newBinaryTemplate(names, values, body)
	}
	fields := make([]string, len(names))
	for i, name := range names {
		value := strings.NewReplacer("\x01", `\u0001`, "\x02", `\u0002`).Replace(values[i])
		fields[i] = fmt.Sprintf(`"%s":"%s"`, name, value)
	}
	f := frame(fmt.Sprintf(`{"code":310,"extFields":{%s},"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":401}`, strings.Join(fields, ","), firstOpaque), body)
	return template{f, bytes.Index(f, []byte(`"e":"Q"`)) + 5, bytes.Index(f, []byte(keyDigits)), bytes.LastIndex(f, []byte(`"opaque":`)) + 9, false}
}

// newBinaryTemplate has RocketMQ's binary header: code, language, version, opaque, flag, remark, fields.
func newBinaryTemplate(names, values []string, body []byte) template {
	var fields []byte
	for i, name := range names {
		fields = append(binary.BigEndian.AppendUint16(fields, uint16(len(name))), name...)
		fields = append(binary.BigEndian.AppendUint32(fields, uint32(len(values[i]))), values[i]...)
	}
	const code, language, version, fixed = 310, 0, 401, 17
	head := append(binary.BigEndian.AppendUint16(nil, code), language)
	head = append(binary.BigEndian.AppendUint16(head, version), make([]byte, fixed-5)...)
	head = append(binary.BigEndian.AppendUint32(head, uint32(len(fields))), fields...)
	f := binary.BigEndian.AppendUint32(nil, uint32(4+len(head)+len(body)))
	f = binary.BigEndian.AppendUint32(f, uint32(1<<24|len(head)))
	f = append(append(f, head...), body...)
	queue := append(binary.BigEndian.AppendUint32([]byte("e"), uint32(len(queueDigit))), queueDigit...)
	return template{f, bytes.Index(f, queue) + 5, bytes.Index(f, []byte(keyDigits)), 8 + 5, true}
}

// patched is the frame of one send, valid until the next.
func (t template) patched(opaque int) []byte {
	t.frame[t.queue] = byte('0' + opaque%min(*queues, 10))
	digits(t.frame[t.key:t.key+len(keyDigits)], opaque)
	if t.binary {
		binary.BigEndian.PutUint32(t.frame[t.opaque:], uint32(opaque))
	} else {
		digits(t.frame[t.opaque:t.opaque+8], opaque)
	}
	return t.frame
}

func digits(into []byte, number int) {
	for i := len(into) - 1; i >= 0; i-- {
		into[i] = byte('0' + number%10)
		number /= 10
	}
}

func write(c net.Conn, ci int, rate float64, body []byte, due []atomic.Int64, began time.Time, over, measuring *atomic.Bool, t *tally) {
	defer c.(interface{ CloseWrite() error }).CloseWrite()
	w := bufio.NewWriterSize(c, 1<<16)
	sends := newTemplate(ci, body, false)
	opaque, total := firstOpaque, 0
	started := time.Now()
	for !over.Load() {
		now := time.Now()
		wanted, sent := int(rate*now.Sub(started).Seconds()), 0
		if measuring.Load() {
			t.offered.Add(int64(wanted - total))
		}
		if skipped := int(rate * (now.Sub(started) - giveUp).Seconds()); skipped > total {
			total = skipped
		}
		for ; total < wanted; total++ {
			when := started.Add(time.Duration(float64(total) / rate * 1e9))
			opaque++
			sent++
			due[opaque%len(due)].Store(when.Sub(began).Nanoseconds() + 1)
			if _, err := w.Write(sends.patched(opaque)); err != nil {
				return
			}
		}
		if w.Flush() != nil {
			return
		}
		if measuring.Load() {
			t.sent.Add(int64(sent))
		}
		time.Sleep(tick)
	}
}

// next is the header of the next answer, valid until the following read; most answers need no copy.
func next(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(8)
	if err != nil {
		return nil, err
	}
	length, header := int(binary.BigEndian.Uint32(head)), int(binary.BigEndian.Uint32(head[4:])&0xffffff)
	if head, err = r.Peek(8 + header); err != nil {
		return nil, err
	}
	_, err = r.Discard(4 + length)
	return head[8:], err
}

func read(c net.Conn, due []atomic.Int64, began time.Time, measuring *atomic.Bool, t *tally) {
	r := bufio.NewReaderSize(c, 1<<17)
	for {
		head, err := next(r)
		if err != nil {
			return
		}
		if !measuring.Load() {
			continue
		}
		opaque := max(number(head, `"opaque":`), 0)
		after := time.Since(began) - time.Duration(due[opaque%len(due)].Load()-1)
		switch code := number(head, `"code":`); {
		case code == 0 && after <= patience:
			if t.good.Add(1)%64 == 0 {
				t.mu.Lock()
				t.goodAfter = append(t.goodAfter, after)
				t.mu.Unlock()
			}
		case code == 0:
			t.late.Add(1)
		case code == 2:
			if t.busy.Add(1)%64 == 0 {
				t.mu.Lock()
				t.busyAfter = append(t.busyAfter, after)
				t.mu.Unlock()
			}
		default:
			t.other.Add(1)
			t.firstOther.CompareAndSwap(nil, string(head))
		}
	}
}
