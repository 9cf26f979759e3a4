// Orders through a Quiver node, with the AWS SDK and sqs-consumer.
//
//     npm install
//     quiver serve              # in one terminal: http://127.0.0.1:7070
//     node orders.mjs           # in another: sends ten orders, works them off, and ends

import { CreateQueueCommand, SendMessageBatchCommand, SQSClient } from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

const ORDERS = 10; // what one batch may carry

const sqs = new SQSClient({
  endpoint: process.env.QUIVER_URL ?? "http://127.0.0.1:7070",
  region: "eu-central-1", // any will do
  credentials: { accessKeyId: "any", secretAccessKey: "any" }, // or what `quiver access key` shows
});

const { QueueUrl } = await sqs.send(new CreateQueueCommand({ QueueName: "orders" }));

await sqs.send(
  new SendMessageBatchCommand({
    QueueUrl,
    Entries: Array.from({ length: ORDERS }, (_, number) => ({
      Id: String(number),
      MessageBody: JSON.stringify({ order: number }),
      MessageAttributes: { shop: { DataType: "String", StringValue: "Zürich" } },
    })),
  }),
);

const done = new Set();
const consumer = Consumer.create({
  sqs,
  queueUrl: QueueUrl,
  batchSize: 10,
  waitTimeSeconds: 5,
  visibilityTimeout: 30,
  messageAttributeNames: ["All"],
  handleMessage: async (message) => {
    const { order } = JSON.parse(message.Body);
    console.log(`order ${order} for ${message.MessageAttributes.shop.StringValue}`);
    done.add(order);
    if (done.size === ORDERS) consumer.stop(); // after this batch
    return message; // deletes it
  },
});
consumer.on("error", (error) => fail(error));
consumer.on("processing_error", (error) => fail(error));
consumer.on("stopped", () => console.log(`${done.size} orders done`));
consumer.start();

function fail(error) {
  console.error(error);
  process.exit(1);
}
