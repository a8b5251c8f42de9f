// paceload: a second load generator that shares nothing with rawload, so that a ratio between two brokers is not a habit of one
// generator. One thread, one epoll object, frames that are built once and patched in place: it costs some 3 µs per message.
//
//	closed loop      -c 512 -d 1            so many requests in flight on each connection
//	with think time  -c 2000 -think 50ms    each connection waits (exponentially distributed) before it sends again
//	open loop        -c 1000 -r 10000       sends at the times of a Poisson process, on a connection drawn at random; latency runs from
//	                                        the time at which a send was due, so a broker that stands still cannot hide it
//
// Requests have JSON headers, or RocketMQ's binary ones with -header binary. Prints one line in the form of rawload's.
package main

import (
	"container/heap"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const (
	ring       = 1 << 20
	firstOpq   = 1_000_000_000
	pwait2     = 441 // epoll_pwait2: the only wait that is finer than a millisecond
	readBytes  = 1 << 18
	largestGap = 50 * time.Millisecond
)

var (
	addr   = flag.String("a", "127.0.0.1:10911", "broker address")
	topic  = flag.String("t", "BenchmarkTest", "topic")
	conns  = flag.Int("c", 512, "connections")
	depth  = flag.Int("d", 1, "requests in flight on each connection (closed loop)")
	think  = flag.Duration("think", 0, "mean pause of a connection between an answer and its next request (closed loop)")
	rate   = flag.Float64("r", 0, "sends per second in an open loop; 0: closed loop")
	size   = flag.Int("s", 128, "body bytes")
	queues = flag.Int("q", 16, "queues of the topic")
	header = flag.String("header", "json", "json|binary")
	secs   = flag.Float64("T", 10, "seconds")
	warm   = flag.Float64("W", 2, "warm-up seconds")
	pid    = flag.Int("pid", 0, "broker pid for CPU figures")
	seed   = flag.Int64("seed", 1, "of the random times")
)

// conn is one connection: what it has read of an answer, and what the socket did not take yet.
type conn struct {
	fd      int
	pending []byte
	unsent  []byte
}

// event is a connection that has thought for long enough.
type event struct {
	when int64
	at   int
}

type thinkers []event

func (t thinkers) Len() int           { return len(t) }
func (t thinkers) Less(i, j int) bool { return t[i].when < t[j].when }
func (t thinkers) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *thinkers) Push(x any)        { *t = append(*t, x.(event)) }
func (t *thinkers) Pop() any {
	old := *t
	last := old[len(old)-1]
	*t = old[:len(old)-1]
	return last
}

type load struct {
	epoll     int
	conns     []conn
	frames    [][]byte
	opaqueAt  []int
	keyAt     []int
	began     time.Time
	due       []int64
	next      int
	nextDue   float64
	thinking  thinkers
	random    *rand.Rand
	measuring bool
	count     int
	errs      int
	first     string
	tookUs    []int32
	buffer    []byte
}

func fail(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// frame builds the request for a queue; opaque and key are patched later, so they have their final width.
func frame(queue int) (data []byte, opaqueAt, keyAt int) {
	const key = "7F00000100000000000000000000"
	properties := "UNIQ_KEY\x01" + key + "\x02WAIT\x01true"
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "m"}
	values := []string{"pg", *topic, "TBW102", "4", strconv.Itoa(queue), "0", strconv.FormatInt(time.Now().UnixMilli(), 10), "0", properties, "0", "false", "false"}
	var head []byte
	kind := 0
	if *header == "binary" {
		kind = 1
		head = binary.BigEndian.AppendUint16(head, 310)
		head = append(head, 0)
		head = binary.BigEndian.AppendUint16(head, 401)
		opaqueAt = 8 + len(head)
		head = append(head, make([]byte, 4+4+4)...)
		var fields []byte
		for i, name := range names {
			fields = binary.BigEndian.AppendUint16(fields, uint16(len(name)))
			fields = append(fields, name...)
			fields = binary.BigEndian.AppendUint32(fields, uint32(len(values[i])))
			fields = append(fields, values[i]...)
		}
		head = binary.BigEndian.AppendUint32(head, uint32(len(fields)))
		head = append(head, fields...)
	} else {
		var text strings.Builder
		text.WriteString(`{"code":310,"extFields":{`)
		for i, name := range names {
			value := strings.NewReplacer("\x01", `\u0001`, "\x02", `\u0002`).Replace(values[i])
			fmt.Fprintf(&text, `"%s":"%s",`, name, value)
		}
		open := strings.TrimSuffix(text.String(), ",") + `},"flag":0,"language":"JAVA","opaque":`
		opaqueAt = 8 + len(open)
		head = []byte(open + strconv.Itoa(firstOpq) + `,"serializeTypeCurrentRPC":"JSON","version":401}`)
	}
	body := strings.Repeat("x", *size)
	data = binary.BigEndian.AppendUint32(nil, uint32(4+len(head)+len(body)))
	data = binary.BigEndian.AppendUint32(data, uint32(kind<<24|len(head)))
	data = append(append(data, head...), body...)
	return data, opaqueAt, strings.Index(string(data), key) + len(key) - 10
}

// request patches the frame of a queue and gives it; due is when it was to leave, in ns since the start.
func (l *load) request(due int64) []byte {
	l.next++
	at := l.next % len(l.frames)
	data := l.frames[at]
	opaque := firstOpq + l.next
	if *header == "binary" {
		binary.BigEndian.PutUint32(data[l.opaqueAt[at]:], uint32(opaque))
	} else {
		digits(data[l.opaqueAt[at]:l.opaqueAt[at]+10], opaque)
	}
	digits(data[l.keyAt[at]:l.keyAt[at]+10], opaque)
	l.due[l.next%ring] = due
	return data
}

func digits(into []byte, number int) {
	for i := len(into) - 1; i >= 0; i-- {
		into[i] = byte('0' + number%10)
		number /= 10
	}
}

func (l *load) now() int64 { return int64(time.Since(l.began)) }

// send writes what the socket takes and keeps the rest until it takes more.
func (l *load) send(at int, data []byte) {
	c := &l.conns[at]
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

func (l *load) watch(at, how int, what uint32) {
	fail(syscall.EpollCtl(l.epoll, how, l.conns[at].fd, &syscall.EpollEvent{Events: what, Fd: int32(at)}))
}

// receive reads one socket and answers in a closed loop what it has read: as many requests as there were answers, in one write.
func (l *load) receive(at int) {
	c := &l.conns[at]
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
			heap.Push(&l.thinking, event{now + int64(l.random.ExpFloat64()*float64(*think)), at})
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
func (l *load) heard(binaryHead bool, head []byte, now int64) {
	var code, opaque int
	if binaryHead {
		code, opaque = int(binary.BigEndian.Uint16(head)), int(binary.BigEndian.Uint32(head[5:]))
	} else {
		text := unsafe.String(&head[0], len(head))
		code, opaque = number(text, `"code":`), number(text, `"opaque":`)
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
	l.tookUs = append(l.tookUs, int32((now-l.due[(opaque-firstOpq)%ring])/1000))
}

func number(text, key string) int {
	at := strings.Index(text, key)
	if at < 0 {
		return -1
	}
	n := 0
	for at += len(key); at < len(text) && text[at] >= '0' && text[at] <= '9'; at++ {
		n = n*10 + int(text[at]-'0')
	}
	return n
}

// turn sends what is due, waits for answers until the next send is, and reads them.
func (l *load) turn(events []syscall.EpollEvent) {
	wait := largestGap
	if *rate > 0 {
		for int64(l.nextDue) <= l.now() {
			l.send(l.random.Intn(len(l.conns)), l.request(int64(l.nextDue)))
			l.nextDue += l.random.ExpFloat64() * 1e9 / *rate
		}
		wait = min(wait, time.Duration(int64(l.nextDue)-l.now()))
	}
	for len(l.thinking) > 0 && l.thinking[0].when <= l.now() {
		one := heap.Pop(&l.thinking).(event)
		l.send(one.at, l.request(one.when))
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
	for _, one := range events[:n] {
		at := int(one.Fd)
		if one.Events&syscall.EPOLLOUT != 0 {
			data := l.conns[at].unsent
			l.conns[at].unsent = nil
			l.watch(at, syscall.EPOLL_CTL_MOD, syscall.EPOLLIN)
			l.send(at, data)
		}
		if one.Events&^syscall.EPOLLOUT != 0 {
			l.receive(at)
		}
	}
}

func (l *load) connect() {
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
		l.conns = append(l.conns, conn{fd: fd})
		l.watch(at, syscall.EPOLL_CTL_ADD, syscall.EPOLLIN)
	}
}

// run goes on for so many seconds; how many they were.
func (l *load) run(seconds float64) float64 {
	events := make([]syscall.EpollEvent, 512)
	from := time.Now()
	for time.Since(from).Seconds() < seconds {
		l.turn(events)
	}
	return time.Since(from).Seconds()
}

// usage is the CPU seconds of a process so far, and its private memory in MB.
func usage(pid int) (cpu float64, privateMB int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	kb := 0
	fmt.Sscanf(rest, "%d", &kb)
	return float64(user+system) / 100, kb / 1024
}

func main() {
	flag.Parse()
	runtime.LockOSThread()
	debug.SetGCPercent(800)
	epoll, err := syscall.EpollCreate1(0)
	fail(err)
	l := &load{epoll: epoll, began: time.Now(), due: make([]int64, ring), random: rand.New(rand.NewSource(*seed)), buffer: make([]byte, readBytes)}
	for queue := 0; queue < *queues; queue++ {
		data, opaqueAt, keyAt := frame(queue)
		l.frames, l.opaqueAt, l.keyAt = append(l.frames, data), append(l.opaqueAt, opaqueAt), append(l.keyAt, keyAt)
	}
	l.connect()
	l.nextDue = float64(l.now())
	if *rate == 0 {
		for at := range l.conns {
			for i := 0; i < *depth; i++ {
				l.send(at, l.request(l.now()))
			}
		}
	}
	l.run(*warm)
	l.measuring = true
	before, _ := usage(*pid)
	elapsed := l.run(*secs)
	after, private := usage(*pid)
	sort.Slice(l.tookUs, func(i, j int) bool { return l.tookUs[i] < l.tookUs[j] })
	at := func(share float64) float64 {
		if len(l.tookUs) == 0 {
			return 0
		}
		return float64(l.tookUs[int(share*float64(len(l.tookUs)-1))]) / 1000
	}
	fmt.Printf("pace c=%d d=%d s=%d msgs/s=%.0f p50=%.2fms p99=%.2fms p999=%.2fms max=%.1fms cpu_us/msg=%.2f cores=%.2f rss_anon_mb=%d errs=%d", *conns, *depth, *size, float64(l.count)/elapsed, at(.5), at(.99), at(.999), at(1), (after-before)*1e6/float64(max(l.count, 1)), (after-before)/elapsed, private, l.errs)
	if l.first != "" {
		fmt.Printf(" first_error=%s", l.first)
	}
	fmt.Println()
}
