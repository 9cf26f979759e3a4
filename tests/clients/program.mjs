// What the SDK for JavaScript does with a node: it says as JSON what it found, and test_node.py judges.

import * as aws from "@aws-sdk/client-sqs";

const { SQSClient, paginateListQueues } = aws;
const sqs = new SQSClient({}); // endpoint, region and keys are in the environment
const ask = (action, input) => sqs.send(new aws[`${action}Command`](input));
const found = {};

// a message with every kind of attribute; the SDK itself checks the MD5 of what it sends and receives
const { QueueUrl } = await ask("CreateQueue", {
  QueueName: "jobs",
  Attributes: { VisibilityTimeout: "30", MessageRetentionPeriod: "86400" },
  tags: { team: "blue" },
});
found.url = QueueUrl;
const sent = await ask("SendMessage", {
  QueueUrl,
  MessageBody: "Grüße €",
  MessageAttributes: {
    colour: { DataType: "String", StringValue: "grün" },
    weight: { DataType: "Number", StringValue: "1.50" },
    photo: { DataType: "Binary", BinaryValue: new Uint8Array([0, 1, 255]) },
  },
});
const [message] = (
  await ask("ReceiveMessage", {
    QueueUrl,
    WaitTimeSeconds: 5,
    MessageAttributeNames: ["All"],
    MessageSystemAttributeNames: ["All"],
  })
).Messages;
found.message = {
  same: message.MessageId === sent.MessageId,
  body: message.Body,
  colour: message.MessageAttributes.colour.StringValue,
  weight: message.MessageAttributes.weight.StringValue,
  photo: [...message.MessageAttributes.photo.BinaryValue],
  attempts: message.Attributes.ApproximateReceiveCount,
};
const { ReceiptHandle } = message;
await ask("ChangeMessageVisibility", { QueueUrl, ReceiptHandle, VisibilityTimeout: 60 });
await ask("DeleteMessage", { QueueUrl, ReceiptHandle });
found.tags = (await ask("ListQueueTags", { QueueUrl })).Tags;

// a question waits, and is answered when something comes
const waiting = ask("ReceiveMessage", { QueueUrl, WaitTimeSeconds: 20 });
await ask("SendMessage", { QueueUrl, MessageBody: "awaited" });
const [awaited] = (await waiting).Messages;
found.awaited = awaited.Body;
await ask("DeleteMessage", { QueueUrl, ReceiptHandle: awaited.ReceiptHandle });

// batches, many at the same time
const BATCHES = 20;
await Promise.all(
  Array.from({ length: BATCHES }, (_, batch) =>
    ask("SendMessageBatch", {
      QueueUrl,
      Entries: Array.from({ length: 10 }, (_, n) => ({ Id: `e${n}`, MessageBody: `${batch}/${n}` })),
    }),
  ),
);
const bodies = new Set();
while (bodies.size < BATCHES * 10) {
  const { Messages } = await ask("ReceiveMessage", {
    QueueUrl,
    MaxNumberOfMessages: 10,
    WaitTimeSeconds: 10,
  });
  Messages.forEach((m) => bodies.add(m.Body));
  const { Failed } = await ask("DeleteMessageBatch", {
    QueueUrl,
    Entries: Messages.map((m, n) => ({ Id: String(n), ReceiptHandle: m.ReceiptHandle })),
  });
  if (Failed?.length) throw new Error(JSON.stringify(Failed));
}
found.bodies = bodies.size;
found.left = (await ask("GetQueueAttributes", { QueueUrl, AttributeNames: ["All"] })).Attributes;

// order and duplicates
const fifo = (
  await ask("CreateQueue", { QueueName: "jobs.fifo", Attributes: { FifoQueue: "true" } })
).QueueUrl;
for (const id of ["a", "b", "b", "c"])
  await ask("SendMessage", {
    QueueUrl: fifo,
    MessageBody: id,
    MessageGroupId: "g",
    MessageDeduplicationId: id,
  });
const ordered = await ask("ReceiveMessage", { QueueUrl: fifo, MaxNumberOfMessages: 10 });
found.ordered = ordered.Messages.map((m) => m.Body);

// pages
for (let n = 0; n < 5; n++) await ask("CreateQueue", { QueueName: `many-${n}` });
found.pages = [];
for await (const page of paginateListQueues({ client: sqs, pageSize: 2 }, { QueueNamePrefix: "many-" }))
  found.pages.push(page.QueueUrls.length);

// errors are of the SDK's own classes
const refusals = {
  QueueDoesNotExist: ["GetQueueUrl", { QueueName: "nowhere" }],
  ReceiptHandleIsInvalid: ["DeleteMessage", { QueueUrl, ReceiptHandle: "nonsense" }],
  EmptyBatchRequest: ["SendMessageBatch", { QueueUrl, Entries: [] }],
};
found.refusals = {};
for (const [name, [action, input]] of Object.entries(refusals))
  try {
    await ask(action, input);
  } catch (error) {
    found.refusals[name] = error instanceof aws[name] && error.$metadata.httpStatusCode;
  }

console.log(JSON.stringify(found));
