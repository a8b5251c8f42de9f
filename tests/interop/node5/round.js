'use strict';
// Node's client of RocketMQ 5, once: `round.js ENDPOINTS TOPIC COUNT`. A line of text for each event.
// Behind "ready" each line that it reads is sent as a message, as often as it takes, and received.

const { createInterface } = require('node:readline');
const { Producer, PushConsumer, SimpleConsumer, ConsumeResult } = require('rocketmq-client-nodejs');

const [endpoints, topic, wanted] = process.argv.slice(2);
const count = Number(wanted);
const logger = { ...console, log: console.error, info: console.error, debug: () => {} };

function tell(what, message) {
  const properties = JSON.stringify(Object.fromEntries(message.properties));
  const words = [what, message.body, message.tag, message.keys.join(), properties];
  console.log([...words, message.deliveryAttempt].join(' '));
}

async function asOftenAsItTakes(work) {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      console.error(error);
      await new Promise(resolve => setTimeout(resolve, 200));
    }
  }
}

async function main() {
  const producer = new Producer({ endpoints, namespace: '', topics: [topic], logger });
  await producer.startup();
  for (let number = 0; number < count; number++) {
    const properties = new Map([['number', String(number)]]);
    const body = Buffer.from(`body-${number}`);
    await producer.send({ topic, tag: 'node', keys: [`k${number}`], properties, body });
  }
  console.log(`sent ${count}`);

  const refused = new Set();
  const push = new PushConsumer({
    endpoints, namespace: '', logger,
    consumerGroup: `${topic}-push`,
    subscriptions: new Map([[topic, '*']]),
    messageListener: {
      async consume(message) {
        tell('pushed', message);
        const body = String(message.body);
        if (body !== 'body-0' || refused.has(body)) return ConsumeResult.SUCCESS;
        refused.add(body);
        return ConsumeResult.FAILURE;
      },
    },
  });
  await push.startup();

  const simple = new SimpleConsumer({
    endpoints, namespace: '', logger, awaitDuration: 5000,
    consumerGroup: `${topic}-simple`,
    subscriptions: new Map([[topic, '*']]),
  });
  await simple.startup();
  async function receive() {
    const bodies = [];
    for (const message of await simple.receive(32, 30000)) {
      await simple.ack(message);
      tell('received', message);
      bodies.push(String(message.body));
    }
    return bodies;
  }
  for (let received = 0; received < count;) received += (await receive()).length;
  console.log('ready');

  for await (const body of createInterface({ input: process.stdin })) {
    if (!body) break;
    await asOftenAsItTakes(() => producer.send({ topic, body: Buffer.from(body) }));
    console.log(`sent ${body}`);
    for (let came = []; !came.includes(body);) came = await asOftenAsItTakes(receive);
  }
  await push.shutdown();
  await simple.shutdown();
  await producer.shutdown();
  console.log('end');
  process.exit(0);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
