// A member of a group in Go, behind a pipe: it says on stdout which queues its strategy gives it ("share 0 3") and
// which messages it handles ("got BODY"). The end of stdin ends it.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

var strategies = map[string]consumer.AllocateStrategy{
	"AVG":           consumer.AllocateByAveragely,
	"AVG_BY_CIRCLE": consumer.AllocateByAveragelyCircle,
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

func main() {
	namesrv, group, topic, name, instance := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	rlog.SetLogLevel("error")
	member, err := consumer.NewPushConsumer(
		consumer.WithNameServer([]string{namesrv}),
		consumer.WithGroupName(group),
		consumer.WithInstance(instance),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithStrategy(telling(topic, strategies[name])),
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
