// Drives kafkajs: commands, words and answers are those of bench/clients/with_program.py.
const readline = require("node:readline");
const { Kafka, PartitionAssigners, Partitioners, logLevel } = require("kafkajs");

const [command, bootstrap, ...words] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.NOTHING });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

class Lacks extends Error {}

async function administer(ask) {
  const admin = kafka.admin();
  await admin.connect();
  try {
    return await ask(admin);
  } finally {
    await admin.disconnect();
  }
}

function producerOf(idempotent, transactionalId) {
  const own = { createPartitioner: Partitioners.DefaultPartitioner, idempotent };
  if (idempotent) own.maxInFlightRequests = 1;
  if (transactionalId) own.transactionalId = transactionalId;
  return kafka.producer(own);
}

const messages = (values) => values.map((value) => ({ key: value, value }));

async function produce(topic, acks, idempotent, ...values) {
  const producer = producerOf(idempotent === "true");
  await producer.connect();
  try {
    await producer.send({ topic, acks: acks === "all" ? -1 : Number(acks), messages: messages(values) });
  } finally {
    await producer.disconnect();
  }
}

class Member {
  constructor(groupId, topics) {
    this.came = [];
    this.held = [];
    this.places = new Map();
    this.failed = null;
    this.topics = topics;
    const assigners = { partitionAssigners: [PartitionAssigners.roundRobin] };
    this.consumer = kafka.consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 500, ...assigners });
    this.consumer.on("consumer.group_join", ({ payload }) => {
      this.held = Object.entries(payload.memberAssignment).flatMap(([topic, parts]) => parts.map((part) => [topic, part]));
    });
    this.consumer.on("consumer.crash", ({ payload }) => {
      this.failed = payload.error;
    });
  }

  async begin() {
    await this.consumer.connect();
    await this.consumer.subscribe({ topics: this.topics, fromBeginning: true });
    const eachMessage = async (one) => {
      this.came.push(one);
    };
    // It joins as it starts, for which others may have to be polled.
    this.consumer.run({ autoCommit: false, eachMessage }).catch((error) => {
      this.failed = error;
    });
    return this;
  }

  async poll(wait) {
    await sleep(wait);
    const came = this.came.splice(0);
    for (const { topic, partition, message } of came) {
      this.places.set(`${topic}/${partition}`, { topic, partition, offset: String(BigInt(message.offset) + 1n) });
    }
    const error = this.failed;
    this.failed = null;
    if (error && !came.length) throw error;
    return [came.map(({ message }) => message.value.toString()), this.held];
  }

  async commit() {
    await this.consumer.commitOffsets([...this.places.values()]);
  }
}

async function read(topic, seconds, ...wanted) {
  const member = await new Member(`${topic}-reads-${Date.now()}`, [topic]).begin();
  const left = new Set(wanted);
  const found = [];
  const until = Date.now() + Number(seconds) * 1000;
  while (left.size && Date.now() < until) {
    const [values] = await member.poll(250);
    values.forEach((value) => left.delete(value));
    found.push(...values);
  }
  await member.consumer.disconnect();
  return found;
}

async function transaction(producer, topic, values, more, commit) {
  const begun = await producer.transaction();
  try {
    await begun.send({ topic, messages: messages(values) });
    await more(begun);
    if (commit) await begun.commit();
  } catch (error) {
    if (begun.isActive()) await begun.abort();
    throw error;
  }
  if (!commit) await begun.abort();
}

async function transact(topic, group, place, commit, ...values) {
  const producer = producerOf(true, `${group}-writer`);
  await producer.connect();
  try {
    const topics = [{ topic, partitions: [{ partition: 0, offset: place }] }];
    const more = (begun) => begun.sendOffsets({ consumerGroupId: group, topics });
    await transaction(producer, topic, values, more, commit === "true");
  } finally {
    await producer.disconnect();
  }
}

async function ends(...topics) {
  return administer(async (admin) => {
    const found = {};
    for (const topic of topics) {
      const parts = await admin.fetchTopicOffsets(topic);
      found[topic] = parts.reduce((sum, { high }) => sum + Number(high), 0);
    }
    return found;
  });
}

async function place(groupId, topic) {
  const [told] = await administer((admin) => admin.fetchOffsets({ groupId, topics: [topic] }));
  const part = told.partitions.find(({ partition }) => partition === 0);
  return part ? Number(part.offset) : -1;
}

async function describe() {
  const { clusterId, brokers } = await administer((admin) => admin.describeCluster());
  return [clusterId, brokers.length];
}

const once = {
  look: () => administer(async (admin) => [await admin.listTopics(), (await admin.describeCluster()).brokers.length]),
  produce,
  read,
  transact,
  place,
  describe,
  create: (topic) =>
    administer((admin) => admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1 }] })),
  ends,
  groups: () => administer(async (admin) => (await admin.listGroups()).groups.map(({ groupId }) => groupId)),
};

const living = {
  async member(group, way, instance, ...topics) {
    if (!group || way !== "eager" || instance) throw new Lacks("it has only eager groups, without static members");
    const member = await new Member(group, topics).begin();
    return {
      ask: ([what, wait]) => (what === "commit" ? member.commit() : member.poll(Number(wait))),
      end: () => member.consumer.disconnect(),
    };
  },
  async writer(topic, transactionalId) {
    const producer = producerOf(true, transactionalId);
    await producer.connect();
    const plain = (values) => producer.send({ topic, messages: messages(values) });
    const committed = (values) => transaction(producer, topic, values, async () => {}, true);
    return { ask: async (values) => void (await (transactionalId ? committed : plain)(values)), end: () => producer.disconnect() };
  },
};

function told(error) {
  for (let cause = error; cause; cause = cause.cause || cause.originalError) {
    if (cause instanceof Lacks) return { lacks: cause.message };
    if (cause.name === "KafkaJSProtocolError") return { refused: `${cause.type}: ${cause.message}` };
  }
  return { wrong: `${error.name}: ${error.message}` };
}

const answer = (said) => process.stdout.write(`${JSON.stringify(said)}\n`);
const answered = async (ask) => {
  try {
    answer({ found: (await ask()) ?? null });
  } catch (error) {
    answer(told(error));
  }
};

async function run() {
  if (!(command in living)) return answered(() => once[command](...words));
  let alive;
  await answered(async () => {
    alive = await living[command](...words);
  });
  if (!alive) return;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    await answered(() => alive.ask(line.split(" ")));
  }
  await alive.end();
}

run().then(() => process.exit(0));
