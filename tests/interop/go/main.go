// A member of a group in Go, behind a pipe: it says on stdout which queues its strategy gives it ("share 0 3") and
// which messages it handles ("got BODY"), or as a producer what became of its messages. The end of stdin ends it.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	// Positions of each member on the ring of CONSISTENT_HASH.
	virtualNodes = 10
	pause        = 100 * time.Millisecond
)

// strategyOf is the client's strategy of a name; "given" is the queues of CONFIG ("topic/broker/id", with blanks
// between) or the rooms of MACHINE_ROOM.
func strategyOf(name string, given []string) consumer.AllocateStrategy {
	switch name {
	case "AVG", "ORDERLY":
		return consumer.AllocateByAveragely
	case "AVG_BY_CIRCLE":
		return consumer.AllocateByAveragelyCircle
	case "NEARBY":
		return consumer.AllocateByMachineNearby
	case "MACHINE_ROOM":
		return consumer.AllocateByMachineRoom(given)
	case "CONSISTENT_HASH":
		return consumer.AllocateByConsistentHash(virtualNodes)
	case "CONFIG":
		var queues []*primitive.MessageQueue
		for _, text := range given {
			parts := strings.Split(text, "/")
			number, err := strconv.Atoi(parts[2])
			if err != nil {
				panic(err)
			}
			queues = append(queues, &primitive.MessageQueue{Topic: parts[0], BrokerName: parts[1], QueueId: number})
		}
		return consumer.AllocateByConfig(queues)
	}
	panic("no strategy " + name)
}

var printing sync.Mutex

func say(words ...string) {
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(strings.Join(words, " "))
}

// telling says what a strategy gives for the topic.
func telling(topic string, strategy consumer.AllocateStrategy) consumer.AllocateStrategy {
	return func(group, own string, queues []*primitive.MessageQueue, members []string) []*primitive.MessageQueue {
		share := strategy(group, own, queues, members)
		if len(queues) > 0 && queues[0].Topic == topic {
			words := []string{"share"}
			for _, queue := range share {
				words = append(words, fmt.Sprint(queue.QueueId))
			}
			say(words...)
		}
		return share
	}
}

// send is a producer that sends each of the given messages once and says "sent STATUS" or "sent ERROR". Each line that
// it reads then is sent as often as it takes: "sent BODY".
func send(namesrv, group, topic, instance string, given []string, account primitive.Credentials) {
	sender, err := producer.NewDefaultProducer(
		producer.WithNameServer([]string{namesrv}),
		producer.WithGroupName(group),
		producer.WithInstanceName(instance),
		producer.WithCredentials(account),
		producer.WithRetry(0),
	)
	if err == nil {
		err = sender.Start()
	}
	if err != nil {
		panic(err)
	}
	for _, body := range given {
		result, err := sender.SendSync(context.Background(), primitive.NewMessage(topic, []byte(body)))
		if err != nil {
			say("sent", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			say("sent", fmt.Sprint(result.Status))
		}
	}
	say("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan() && lines.Text() != ""; {
		for {
			_, err := sender.SendSync(context.Background(), primitive.NewMessage(topic, lines.Bytes()))
			if err == nil {
				break
			}
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(pause)
		}
		say("sent", lines.Text())
	}
	_ = sender.Shutdown()
}

func main() {
	namesrv, group, topic, name, instance := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	given := strings.Fields(os.Args[6])
	account := primitive.Credentials{AccessKey: os.Args[7], SecretKey: os.Args[8]}
	rlog.SetLogLevel("warn")
	if name == "PRODUCER" {
		send(namesrv, group, topic, instance, given, account)
		return
	}
	member, err := consumer.NewPushConsumer(
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithGroupName(group),
		consumer.WithInstance(instance),
		consumer.WithCredentials(account),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithStrategy(telling(topic, strategyOf(name, given))),
		consumer.WithConsumerOrder(name == "ORDERLY"),
	)
	if err != nil {
		panic(err)
	}
	err = member.Subscribe(topic, consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				say("got", string(message.Body))
			}
			return consumer.ConsumeSuccess, nil
		})
	if err == nil {
		err = member.Start()
	}
	if err != nil {
		panic(err)
	}
	say("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	_ = member.Shutdown()
}
