// Go's client of RocketMQ 5, a line of text for each event.
//
//	member ENDPOINTS TOPIC COUNT   one round: sends, a push and a simple consumer
//	member ENDPOINTS FEATURE       fifo, delay or transactions
//
// Behind a round's "ready" each line that it reads is sent as a message, as often as it takes, and
// received; an empty line ends it.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const (
	hidden = 30 * time.Second
	await  = 5 * time.Second
	pause  = 200 * time.Millisecond
	within = 60 * time.Second
)

var (
	endpoints = os.Args[1]
	output    sync.Mutex
)

// tell writes one line: listeners run in goroutines.
func tell(words ...any) {
	output.Lock()
	defer output.Unlock()
	fmt.Println(words...)
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func config(group string) *rocketmq.Config {
	return &rocketmq.Config{
		Endpoint:      endpoints,
		ConsumerGroup: group,
		Credentials:   &credentials.SessionCredentials{},
	}
}

func newProducer(topic string, options ...rocketmq.ProducerOption) rocketmq.Producer {
	producer, err := rocketmq.NewProducer(config(""), append(options, rocketmq.WithTopics(topic))...)
	must(err)
	must(producer.Start())
	return producer
}

func newPush(topic, group string, consume func(*rocketmq.MessageView) rocketmq.ConsumerResult) rocketmq.PushConsumer {
	consumer, err := rocketmq.NewPushConsumer(config(group),
		rocketmq.WithPushAwaitDuration(await),
		rocketmq.WithPushSubscriptionExpressions(map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}),
		rocketmq.WithPushMessageListener(&rocketmq.FuncMessageListener{Consume: consume}))
	must(err)
	must(consumer.Start())
	return consumer
}

func send(producer rocketmq.Producer, message *rocketmq.Message) (*rocketmq.SendReceipt, error) {
	receipts, err := producer.Send(context.Background(), message)
	if err != nil {
		return nil, err
	}
	return receipts[0], nil
}

func described(what string, message *rocketmq.MessageView) string {
	tag, keys, properties := "-", "-", []string{}
	if message.GetTag() != nil {
		tag = *message.GetTag()
	}
	if len(message.GetKeys()) > 0 {
		keys = strings.Join(message.GetKeys(), ",")
	}
	for name, value := range message.GetProperties() {
		properties = append(properties, name+"="+value)
	}
	sort.Strings(properties)
	return strings.Join([]string{what, string(message.GetBody()), tag, keys,
		"{" + strings.Join(properties, ",") + "}",
		strconv.Itoa(int(message.GetDeliveryAttempt()))}, " ")
}

// ── One round ──

type once struct {
	sync.Mutex
	seen map[string]bool
}

// first says whether something is new.
func (once *once) first(what string) bool {
	once.Lock()
	defer once.Unlock()
	new := !once.seen[what]
	once.seen[what] = true
	return new
}

func round(topic string, count int) {
	producer := newProducer(topic)
	for number := 0; number < count; number++ {
		message := &rocketmq.Message{Topic: topic, Body: []byte(fmt.Sprintf("body-%d", number))}
		message.SetTag("go")
		message.SetKeys(fmt.Sprintf("k%d", number))
		message.AddProperty("number", strconv.Itoa(number))
		_, err := send(producer, message)
		must(err)
	}
	tell("sent", count)

	refused := &once{seen: map[string]bool{}}
	push := newPush(topic, topic+"-push", func(message *rocketmq.MessageView) rocketmq.ConsumerResult {
		tell(described("pushed", message))
		if string(message.GetBody()) == "body-0" && refused.first("body-0") {
			return rocketmq.FAILURE
		}
		return rocketmq.SUCCESS
	})

	simple, err := rocketmq.NewSimpleConsumer(config(topic+"-simple"),
		rocketmq.WithSimpleAwaitDuration(await),
		rocketmq.WithSimpleSubscriptionExpressions(map[string]*rocketmq.FilterExpression{topic: rocketmq.SUB_ALL}))
	must(err)
	must(simple.Start())
	// Nothing there is an error to this client, as is everything else.
	receive := func(done func() bool, body func(string)) {
		for !done() {
			messages, err := simple.Receive(context.Background(), 32, hidden)
			if err != nil {
				log.Print(err)
				time.Sleep(pause)
			}
			for _, message := range messages {
				if err := simple.Ack(context.Background(), message); err != nil {
					log.Print(err)
					continue
				}
				tell(described("received", message))
				body(string(message.GetBody()))
			}
		}
	}
	received := 0
	receive(func() bool { return received >= count }, func(string) { received++ })
	tell("ready")

	for lines := bufio.NewScanner(os.Stdin); lines.Scan() && lines.Text() != ""; {
		text := lines.Text()
		message := &rocketmq.Message{Topic: topic, Body: []byte(text)}
		for {
			_, err := send(producer, message)
			if err == nil {
				break
			}
			log.Print(err)
			time.Sleep(pause)
		}
		tell("sent", text)
		came := false
		receive(func() bool { return came }, func(body string) { came = came || body == text })
	}
	push.GracefulStop()
	simple.GracefulStop()
	producer.GracefulStop()
	tell("end")
}

// ── Features ──

// pushed tells the messages of a topic, until there are enough of them.
func pushed(topic string, count int) (wait func()) {
	came := make(chan string, 100)
	consumer := newPush(topic, "go-"+strings.ToLower(topic), func(message *rocketmq.MessageView) rocketmq.ConsumerResult {
		came <- string(message.GetBody())
		return rocketmq.SUCCESS
	})
	return func() {
		over := time.After(within)
		for number := 0; number < count; number++ {
			select {
			case body := <-came:
				tell("got", body)
			case <-over:
				log.Fatal("too few messages")
			}
		}
		consumer.GracefulStop()
	}
}

// fifo sends messages of one group; their order is that of the consumer.
func fifo() {
	producer := newProducer("Fifo")
	for number := 0; number < 5; number++ {
		message := &rocketmq.Message{Topic: "Fifo", Body: []byte(strconv.Itoa(number))}
		message.SetMessageGroup("order-1")
		_, err := send(producer, message)
		must(err)
	}
	pushed("Fifo", 5)()
	producer.GracefulStop()
}

// delay sends a message for later.
func delay() {
	producer := newProducer("Delay")
	wait := pushed("Delay", 1)
	due := time.Now().Add(3 * time.Second).Truncate(time.Second)
	message := &rocketmq.Message{Topic: "Delay", Body: []byte("late")}
	message.SetDelayTimestamp(due)
	_, err := send(producer, message)
	must(err)
	wait()
	tell("not before", !time.Now().Before(due))
	producer.GracefulStop()
}

// transactions commits one, rolls one back, and answers the question about one left open.
func transactions() {
	checker := &rocketmq.TransactionChecker{Check: func(message *rocketmq.MessageView) rocketmq.TransactionResolution {
		tell("check", string(message.GetBody()))
		return rocketmq.COMMIT
	}}
	producer := newProducer("Transaction", rocketmq.WithTransactionChecker(checker))
	wait := pushed("Transaction", 2)
	for _, body := range []string{"commit", "rollback", "open"} {
		transaction := producer.BeginTransaction()
		message := &rocketmq.Message{Topic: "Transaction", Body: []byte(body)}
		_, err := producer.SendWithTransaction(context.Background(), message, transaction)
		must(err)
		switch body {
		case "commit":
			must(transaction.Commit())
		case "rollback":
			must(transaction.RollBack())
		}
	}
	wait()
	producer.GracefulStop()
}

func main() {
	rocketmq.EnableSsl = false
	switch os.Args[2] {
	case "fifo":
		fifo()
	case "delay":
		delay()
	case "transactions":
		transactions()
	default:
		count, err := strconv.Atoi(os.Args[3])
		must(err)
		round(os.Args[2], count)
		return
	}
	tell("end")
}
