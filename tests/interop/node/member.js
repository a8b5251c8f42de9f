'use strict';
// A member of a group in Node, behind a pipe: it says on stdout which queues its strategy gives it ("share 0 3") and
// which messages it handles ("got BODY TAG KEY TIMES"). It refuses each body that begins with "no" once. A line
// "TOPIC BODY TAG KEY" on stdin is sent; an empty line or the end of stdin ends it.
const readline = require('readline');
const { Consumer, Producer, Message } = require('ali-ons');
const Averagely = require('ali-ons/lib/consumer/rebalance/allocate_message_queue_averagely');

const [ nameSrv, group, topic, instanceName ] = process.argv.slice(2);
const say = (...words) => console.log(words.join(' '));
const nothing = () => {};
const logger = { debug: nothing, info: nothing, warn: nothing, error: (...words) => console.error(...words) };
const options = { nameSrv, logger, httpclient: {}, accessKeyId: 'none', accessKeySecret: 'none' };

class Telling extends Averagely {
  allocate(ofGroup, own, queues, members) {
    const share = super.allocate(ofGroup, own, queues, members);
    if (queues[0].topic === topic) {
      say('share', ...share.map(queue => queue.queueId));
    }
    return share;
  }
}

async function main() {
  const consumer = new Consumer({
    ...options,
    instanceName,
    consumerGroup: group,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    rebalanceInterval: 1000,
    persistConsumerOffsetInterval: 500,
    allocateMessageQueueStrategy: new Telling(),
  });
  const producer = new Producer({ ...options, instanceName: `${instanceName}-sender`, producerGroup: `${group}-senders` });
  consumer.on('error', error => console.error(error));
  producer.on('error', error => console.error(error));
  consumer.subscribe(topic, '*', async message => {
    say('got', message.body, message.tags, message.keys, message.reconsumeTimes);
    if (message.body.toString().startsWith('no') && message.reconsumeTimes === 0) {
      throw new Error('refused once');
    }
  });
  await consumer.ready();
  await producer.ready();
  say('ready');
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [ to, body, tag, key ] = line.split(' ');
    if (!to) {
      break;
    }
    const message = new Message(to, tag, body);
    message.keys = [ key ];
    await producer.send(message);
  }
  await consumer.close();
  await producer.close();
}

main().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
