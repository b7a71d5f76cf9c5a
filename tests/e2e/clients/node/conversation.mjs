// The conversation by openai-node; what conversation.py says of the others holds here too.
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const script = JSON.parse(readFileSync(new URL("../script.json", import.meta.url), "utf-8"));
const client = new OpenAI({ baseURL: process.argv[2], apiKey: "EMPTY", timeout: 60_000, maxRetries: 0 });
const ask = (fields = {}) =>
  client.chat.completions.create({ model: script.model, messages: script.question, temperature: 0, ...fields });
const told = (choice) => ({ text: choice.message.content, reason: choice.finish_reason });

async function refused(fields) {
  try {
    await ask(fields);
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error;
    return { class: error.constructor.name, status: error.status, code: error.code, param: error.param };
  }
  throw new Error(`${JSON.stringify(fields)} was not refused`);
}

const models = [];
for await (const model of client.models.list()) models.push(model.id);

const whole = await ask();
const text = whole.choices[0].message.content;
const chunks = [];
for await (const chunk of await ask({ stream: true, stream_options: { include_usage: true } })) chunks.push(chunk);
const choices = chunks.flatMap((chunk) => chunk.choices);
const counted = await ask({ logprobs: true, top_logprobs: 2 });
const form = { type: "json_schema", json_schema: script.json_schema };
const second = [...script.question, { role: "assistant", content: text }, script.again];

const results = {
  models,
  whole: { ...told(whole.choices[0]), usage: whole.usage },
  streamed: {
    text: choices.map((choice) => choice.delta.content ?? "").join(""),
    reason: choices.at(-1).finish_reason,
    usage: chunks.at(-1).usage,
  },
  second: told((await ask({ messages: second })).choices[0]),
  schema: told((await ask({ response_format: form, max_tokens: 40 })).choices[0]),
  logprobs: counted.choices[0].logprobs.content.map((one) => ({
    bytes: one.bytes,
    logprob: one.logprob,
    top: one.top_logprobs.length,
  })),
  n: (await ask({ n: 2 })).choices.map(told),
  stop: told((await ask({ stop: text.slice(script.stop_from, script.stop_to) })).choices[0]),
  length: told((await ask({ max_tokens: 3 })).choices[0]),
  tools: await refused({ tools: [script.tool] }),
  range: await refused({ top_p: 0 }),
  missing: await refused({ model: "gpt-17" }),
};

const stream = await ask({ messages: script.long, stream: true, max_tokens: 4000, ignore_eos: true });
for await (const chunk of stream) {
  results.aborted = chunk.choices[0].delta.content;
  break; // which aborts
}
console.log(JSON.stringify(results));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
