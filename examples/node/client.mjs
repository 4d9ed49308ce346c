// A client in another language: it has cluster.proto and docs/formats.md, and nothing of ours.
//
//   npm ci
//   node client.mjs 127.0.0.1:9000 hello world
//
// opens a session with the leader, sends each word as a message, prints what the service answers, and then the
// messages that the committed log holds of this session. With `echo` as the service:
//
//   member 1 of cluster 0; the leader is member 0
//   session 1 with member 0
//   answer: hello
//   answer: world
//   in the log: hello
//   in the log: world

import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const PROTO = new URL("../../cluster/transport/cluster.proto", import.meta.url);
const DEADLINE_MS = 20_000;

// docs/formats.md, "Frames and positions": the header of a data frame, and the streams.
const FRAME_HEADER = 32;
const [LOG, INGRESS, EGRESS, OURS] = [100, 101, 102, 1000];
const DATA = 1;
const WHOLE_MESSAGE = 0xc0;

// "SBE messages": block length, template id, schema id, version.
const SBE_HEADER = 8;
const CLUSTER = { schema: 111, version: 17 };
const LINK = { schema: 1111, version: 1 };

// "Messages of the cluster": template ids and codes.
const [SESSION_MESSAGE, SESSION_EVENT, CONNECT, CLOSE] = [1, 2, 3, 4];
const [OK, , REDIRECT] = [0, 1, 2];
// "Our own messages".
const [HELLO, HELLO_REPLY] = [1, 2];
const KIND_CLIENT = 1;
const CLIENT_PROTOCOL_VERSION = 768;
const LINK_PROTOCOL_VERSION = 65536;

function frame(streamId, message) {
  const bytes = Buffer.alloc(Math.ceil((FRAME_HEADER + message.length) / 32) * 32);
  bytes.writeInt32LE(FRAME_HEADER + message.length, 0);
  bytes.writeUInt8(WHOLE_MESSAGE, 5);
  bytes.writeUInt16LE(DATA, 6);
  bytes.writeInt32LE(streamId, 16);
  message.copy(bytes, FRAME_HEADER);
  return bytes;
}

function* messagesOf(run) {
  for (let at = 0; at < run.length; ) {
    const length = run.readInt32LE(at);
    if (run.readUInt16LE(at + 6) === DATA) {
      const message = run.subarray(at + FRAME_HEADER, at + length);
      yield { streamId: run.readInt32LE(at + 16), templateId: message.readUInt16LE(2), message };
    }
    at += Math.ceil(length / 32) * 32;
  }
}

function message(templateId, { schema, version }, block, ...varData) {
  const header = Buffer.alloc(SBE_HEADER);
  [block.length, templateId, schema, version].forEach((number, i) => header.writeUInt16LE(number, 2 * i));
  const parts = varData.flatMap((data) => {
    const length = Buffer.alloc(4);
    length.writeUInt32LE(data.length);
    return [length, Buffer.from(data)];
  });
  return Buffer.concat([header, block, ...parts]);
}

// Fields one after another: numbers are i32, BigInts i64.
function block(...fields) {
  const bytes = Buffer.alloc(fields.reduce((sum, field) => sum + (typeof field === "bigint" ? 8 : 4), 0));
  let at = 0;
  for (const field of fields) {
    at = typeof field === "bigint" ? bytes.writeBigInt64LE(field, at) : bytes.writeInt32LE(field, at);
  }
  return bytes;
}

const varData = (bytes, at) => bytes.subarray(at + 4, at + 4 + bytes.readUInt32LE(at));

class Session {
  constructor(stub) {
    this.stream = stub.Session({ deadline: Date.now() + DEADLINE_MS });
    this.heard = this.messages();
    this.correlationId = BigInt(Date.now());
  }

  send(streamId, bytes) {
    this.stream.write({ frames: frame(streamId, bytes) });
  }

  async *messages() {
    for await (const run of this.stream) yield* messagesOf(run.frames);
  }

  async next(streamId, templateId) {
    for (;;) {
      const { value, done } = await this.heard.next();
      if (done) throw new Error("the member has ended the connection");
      if (value.streamId === streamId && value.templateId === templateId) return value.message;
    }
  }

  // The endpoint of the leader where this member is not it; null when the session is open.
  async open() {
    const hello = block(-1, -1, 0n, LINK_PROTOCOL_VERSION, KIND_CLIENT);
    this.send(OURS, message(HELLO, LINK, hello, "example in node"));
    const reply = await this.next(OURS, HELLO_REPLY);
    if (reply.readInt32LE(28) !== OK) throw new Error(`refused: ${varData(reply, SBE_HEADER + 28)}`);

    const request = block(this.correlationId, EGRESS, CLIENT_PROTOCOL_VERSION);
    const info = "name=example version=0.2.0 commit=none";
    this.send(INGRESS, message(CONNECT, CLUSTER, request, "aeron:udp", "", info));
    const event = await this.next(EGRESS, SESSION_EVENT);
    const [code, detail] = [event.readInt32LE(36), varData(event, SBE_HEADER + 44).toString()];
    this.leader = event.readInt32LE(32);
    if (code === REDIRECT) return endpointOf(this.leader, detail);
    if (code !== OK) throw new Error(`no session: ${detail}`);
    this.id = event.readBigInt64LE(8);
    this.termId = event.readBigInt64LE(24);
    return null;
  }

  offer(payload) {
    const header = message(SESSION_MESSAGE, CLUSTER, block(this.termId, this.id, 0n));
    this.send(INGRESS, Buffer.concat([header, Buffer.from(payload)]));
  }

  async answer() {
    return (await this.next(EGRESS, SESSION_MESSAGE)).subarray(SBE_HEADER + 24);
  }

  close() {
    if (this.id !== undefined) this.send(INGRESS, message(CLOSE, CLUSTER, block(this.termId, this.id)));
    this.stream.end();
  }
}

// Of "0=host:port,1=host:port".
function endpointOf(memberId, endpoints) {
  const own = endpoints.split(",").find((each) => each.startsWith(`${memberId}=`));
  if (own === undefined) throw new Error(`member ${memberId} leads, and has no endpoint in ${endpoints}`);
  return own.slice(own.indexOf("=") + 1);
}

async function openSession(connect, endpoint) {
  for (;;) {
    const session = new Session(connect(endpoint));
    const leader = await session.open();
    if (leader === null) return [session, endpoint];
    session.close();
    endpoint = leader;
  }
}

const status = (stub) =>
  new Promise((resolve, reject) =>
    stub.Status({}, { deadline: Date.now() + DEADLINE_MS }, (error, told) => (error ? reject(error) : resolve(told))),
  );

// Messages are one frame each here: whoever sends longer ones puts fragments together.
async function* logOf(stub, sessionId, toPosition) {
  const range = { from_position: 0, to_position: toPosition, max_bytes: 1 << 20 };
  for await (const run of stub.ReadLog(range, { deadline: Date.now() + DEADLINE_MS })) {
    for (const { streamId, templateId, message } of messagesOf(run.frames)) {
      if (streamId !== LOG || templateId !== SESSION_MESSAGE) continue;
      if (message.readBigInt64LE(16) === sessionId) yield message.subarray(SBE_HEADER + 24);
    }
  }
}

const [endpoint, ...words] = process.argv.slice(2);
if (endpoint === undefined || words.length === 0) {
  console.error("usage: node client.mjs HOST:PORT WORD...   (a member's ingress endpoint, and what to send)");
  process.exit(2);
}

const definition = protoLoader.loadSync(fileURLToPath(PROTO), { keepCase: true, longs: String, defaults: true });
const { Frames } = grpc.loadPackageDefinition(definition).cluster;
const stubs = new Map();
const connect = (at) => {
  if (!stubs.has(at)) stubs.set(at, new Frames(at, grpc.credentials.createInsecure()));
  return stubs.get(at);
};

const { member_id, cluster_id, leader_member_id } = await status(connect(endpoint));
console.log(`member ${member_id} of cluster ${cluster_id}; the leader is member ${leader_member_id}`);
const [session, leader] = await openSession(connect, endpoint);
console.log(`session ${session.id} with member ${session.leader}`);
words.forEach((word) => session.offer(word));
for (const _ of words) console.log(`answer: ${await session.answer()}`);
session.close();

const { commit_position } = await status(connect(leader));
for await (const payload of logOf(connect(leader), session.id, commit_position)) {
  console.log(`in the log: ${payload}`);
}
stubs.forEach((stub) => stub.close());
