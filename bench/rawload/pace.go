// The paced loads (-pace): one thread over one epoll object, so that a ratio between two brokers is not a habit of one way to load.
// A frame is built once and patched in place: a message costs some 3 µs.
//
//	closed loop      -c 512 -d 1            so many requests in flight on each connection
//	with think time  -c 2000 -think 50ms    each connection waits (exponentially distributed) before it sends again
//	open loop        -c 1000 -r 10000       sends at the times of a Poisson process, on a connection drawn at random; latency runs from
//	                                        the time at which a send was due, so a broker that stands still cannot hide it
//
// Requests have JSON headers, or RocketMQ's binary ones with -header binary.
package main

import (
	"container/heap"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand"
	"net"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
	"unsafe"
)

const (
	pwait2     = 441 // epoll_pwait2: the only wait that is finer than a millisecond
	readBytes  = 1 << 18
	largestGap = 50 * time.Millisecond
)

var (
	paced  = flag.Bool("pace", false, "one thread over one epoll object (produce)")
	think  = flag.Duration("think", 0, "with -pace: mean pause of a connection between an answer and its next request")
	header = flag.String("header", "json", "with -pace: json|binary")
	seed   = flag.Int64("seed", 1, "with -pace: of the random times")
)

// peer is one connection: what it has read of an answer, and what the socket did not take yet.
type peer struct {
	fd      int
	pending []byte
	unsent  []byte
}

// thought is the moment at which a connection has thought for long enough.
type thought struct {
	when int64
	at   int
}

type thoughts []thought

func (t thoughts) Len() int           { return len(t) }
func (t thoughts) Less(i, j int) bool { return t[i].when < t[j].when }
func (t thoughts) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *thoughts) Push(x any)        { *t = append(*t, x.(thought)) }
func (t *thoughts) Pop() any {
	old := *t
	last := old[len(old)-1]
	*t = old[:len(old)-1]
	return last
}

type pacer struct {
	epoll     int
	peers     []peer
	template  template
	began     time.Time
	due       []int64
	opaque    int
	nextDue   float64
	thinking  thoughts
	random    *rand.Rand
	measuring bool
	count     int64
	errs      int64
	first     string
	took      []time.Duration
	buffer    []byte
}

// request patches the frame and gives it; due is when it was to leave, in ns since the start.
func (l *pacer) request(due int64) []byte {
	l.opaque++
	l.due[l.opaque%ring] = due
	return l.template.patched(l.opaque)
}

func (l *pacer) now() int64 { return int64(time.Since(l.began)) }

// send writes what the socket takes and keeps the rest until it takes more.
func (l *pacer) send(at int, data []byte) {
	c := &l.peers[at]
	if len(c.unsent) > 0 {
		c.unsent = append(c.unsent, data...)
		return
	}
	n, err := syscall.Write(c.fd, data)
	if err != nil && err != syscall.EAGAIN {
		fail(err)
	}
	if n = max(n, 0); n < len(data) {
		c.unsent = append(c.unsent[:0], data[n:]...)
		l.watch(at, syscall.EPOLL_CTL_MOD, syscall.EPOLLIN|syscall.EPOLLOUT)
	}
}

func (l *pacer) watch(at, how int, what uint32) {
	fail(syscall.EpollCtl(l.epoll, how, l.peers[at].fd, &syscall.EpollEvent{Events: what, Fd: int32(at)}))
}

// receive reads one socket and answers in a closed loop what it has read: as many requests as there were answers, in one write.
func (l *pacer) receive(at int) {
	c := &l.peers[at]
	n, err := syscall.Read(c.fd, l.buffer)
	if err == syscall.EAGAIN {
		return
	}
	if err != nil || n == 0 {
		fail(fmt.Errorf("closed by the broker: %v", err))
	}
	data := l.buffer[:n]
	if len(c.pending) > 0 {
		data = append(c.pending, data...)
	}
	now := l.now()
	var out []byte
	for len(data) >= 8 {
		end := 4 + int(binary.BigEndian.Uint32(data))
		if end > len(data) {
			break
		}
		l.heard(data[4] == 1, data[8:end], now)
		data = data[end:]
		switch {
		case *rate > 0:
		case *think > 0:
			heap.Push(&l.thinking, thought{now + int64(l.random.ExpFloat64()*float64(*think)), at})
		default:
			out = append(out, l.request(now)...)
		}
	}
	c.pending = append([]byte(nil), data...)
	if len(out) > 0 {
		l.send(at, out)
	}
}

// heard notes one answer. Java's broker answers some binary requests in JSON.
func (l *pacer) heard(binaryHead bool, head []byte, now int64) {
	var code, opaque int
	if binaryHead {
		code, opaque = int(binary.BigEndian.Uint16(head)), int(binary.BigEndian.Uint32(head[5:]))
	} else {
		code, opaque = number(head, `"code":`), number(head, `"opaque":`)
	}
	if !l.measuring {
		return
	}
	if code != 0 {
		l.errs++
		if l.first == "" {
			l.first = string(head)
		}
		return
	}
	l.count++
	l.took = append(l.took, time.Duration(now-l.due[opaque%ring]))
}

// turn sends what is due, waits for answers until the next send is, and reads them.
func (l *pacer) turn(events []syscall.EpollEvent) {
	wait := largestGap
	if *rate > 0 {
		for int64(l.nextDue) <= l.now() {
			l.send(l.random.Intn(len(l.peers)), l.request(int64(l.nextDue)))
			l.nextDue += l.random.ExpFloat64() * 1e9 / *rate
		}
		wait = min(wait, time.Duration(int64(l.nextDue)-l.now()))
	}
	for len(l.thinking) > 0 && l.thinking[0].when <= l.now() {
		next := heap.Pop(&l.thinking).(thought)
		l.send(next.at, l.request(next.when))
	}
	if len(l.thinking) > 0 {
		wait = min(wait, time.Duration(l.thinking[0].when-l.now()))
	}
	timeout := syscall.NsecToTimespec(int64(max(wait, 0)))
	n, _, errno := syscall.Syscall6(pwait2, uintptr(l.epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno != 0 && errno != syscall.EINTR {
		fail(errno)
	}
	if errno != 0 {
		return
	}
	for _, ready := range events[:n] {
		at := int(ready.Fd)
		if ready.Events&syscall.EPOLLOUT != 0 {
			data := l.peers[at].unsent
			l.peers[at].unsent = nil
			l.watch(at, syscall.EPOLL_CTL_MOD, syscall.EPOLLIN)
			l.send(at, data)
		}
		if ready.Events&^syscall.EPOLLOUT != 0 {
			l.receive(at)
		}
	}
}

func (l *pacer) connect() {
	limit := syscall.Rlimit{}
	fail(syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	limit.Cur = limit.Max
	fail(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	where, err := net.ResolveTCPAddr("tcp4", *addr)
	fail(err)
	to := &syscall.SockaddrInet4{Port: where.Port}
	copy(to.Addr[:], where.IP.To4())
	for at := 0; at < *conns; at++ {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
		fail(err)
		fail(syscall.Connect(fd, to))
		fail(syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1))
		fail(syscall.SetNonblock(fd, true))
		l.peers = append(l.peers, peer{fd: fd})
		l.watch(at, syscall.EPOLL_CTL_ADD, syscall.EPOLLIN)
	}
}

// run goes on for so many seconds; how many they were.
func (l *pacer) run(seconds float64) float64 {
	events := make([]syscall.EpollEvent, 512)
	from := time.Now()
	for time.Since(from).Seconds() < seconds {
		l.turn(events)
	}
	return time.Since(from).Seconds()
}

// pace runs one paced load and prints its figures.
func pace() {
	if *sealed || *user != "" || *mode != "produce" {
		fail(fmt.Errorf("-pace produces, without -tls and -user"))
	}
	runtime.LockOSThread()
	debug.SetGCPercent(800)
	epoll, err := syscall.EpollCreate1(0)
	fail(err)
	l := &pacer{
		epoll: epoll, began: time.Now(), due: make([]int64, ring), opaque: firstOpaque, template: newTemplate(0, make([]byte, *size), *header == "binary"),
		random: rand.New(rand.NewSource(*seed)), buffer: make([]byte, readBytes),
	}
	l.connect()
	l.nextDue = float64(l.now())
	if *rate == 0 {
		for at := range l.peers {
			for i := 0; i < *depth; i++ {
				l.send(at, l.request(l.now()))
			}
		}
	}
	l.run(*warm)
	l.measuring = true
	before, _ := cpuTicks(*pid)
	elapsed := l.run(*secs)
	after, rss := cpuTicks(*pid)
	printFigures("pace", l.count, elapsed, l.took, after-before, rss, l.errs)
	if l.first != "" {
		fmt.Printf(" first_error=%s", l.first)
	}
	fmt.Println()
}
