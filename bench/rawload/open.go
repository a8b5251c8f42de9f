// The open loop: requests leave by the clock, whatever has been answered. A request whose socket takes nothing for `giveUp`
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
	"sync"
	"sync/atomic"
	"time"
)

const (
	ring     = 1 << 20
	giveUp   = time.Second
	patience = 3 * time.Second
	tick     = 5 * time.Millisecond
)

type tally struct {
	offered, sent, good, late, busy, other atomic.Int64
	mu                                     sync.Mutex
	goodAfter, busyAfter                   []time.Duration
	firstOther                             atomic.Value
}

func number(head []byte, key string) int {
	at := bytes.Index(head, []byte(key))
	if at < 0 {
		return 0
	}
	end := at + len(key)
	for end < len(head) && (head[end] >= '0' && head[end] <= '9') {
		end++
	}
	n, _ := strconv.Atoi(string(head[at+len(key) : end]))
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

func write(c net.Conn, ci int, rate float64, body []byte, due []atomic.Int64, began time.Time, over, measuring *atomic.Bool, t *tally) {
	defer c.(interface{ CloseWrite() error }).CloseWrite()
	w := bufio.NewWriterSize(c, 1<<16)
	opaque, total := 0, 0
	started := time.Now()
	for !over.Load() {
		now := time.Now()
		wanted := int(rate * now.Sub(started).Seconds())
		for ; total < wanted; total++ {
			when := started.Add(time.Duration(float64(total) / rate * 1e9))
			if measuring.Load() {
				t.offered.Add(1)
			}
			if time.Since(when) > giveUp {
				continue
			}
			opaque++
			due[opaque%len(due)].Store(when.Sub(began).Nanoseconds() + 1)
			h := fmt.Sprintf(`{"code":310,"extFields":{"a":"pg","b":"%s","c":"TBW102","d":"4","e":"%d","f":"0","g":"%d","h":"0","i":"UNIQ_KEY\u00017F000001%08X%08X%08X\u0002WAIT\u0001true","j":"0","k":"false","m":"false"},"flag":0,"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":401}`, *topic, opaque%*queues, now.UnixMilli(), ci, opaque, ci, opaque)
			var l [8]byte
			binary.BigEndian.PutUint32(l[:4], uint32(4+len(h)+len(body)))
			binary.BigEndian.PutUint32(l[4:], uint32(len(h)))
			w.Write(l[:])
			w.WriteString(h)
			if _, err := w.Write(body); err != nil {
				return
			}
			if measuring.Load() {
				t.sent.Add(1)
			}
		}
		if w.Flush() != nil {
			return
		}
		time.Sleep(tick)
	}
}

func read(c net.Conn, due []atomic.Int64, began time.Time, measuring *atomic.Bool, t *tally) {
	r := bufio.NewReaderSize(c, 1<<17)
	for {
		head, _, err := readFrame(r)
		if err != nil {
			return
		}
		if !measuring.Load() {
			continue
		}
		opaque := number(head, `"opaque":`)
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
