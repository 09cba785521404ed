/** Releases the lock at the end of the job, and fails if it was lost before. */

import { connect } from "node:net";
import { fail, saved } from "./runner.js";

const TIMEOUT_MS = 15_000;

function ask(channel) {
  return new Promise((resolve, reject) => {
    const connection = connect(channel, () => connection.write("release\n"));
    let text = "";
    connection.setTimeout(TIMEOUT_MS, () => connection.destroy(new Error("the keeper does not answer")));
    connection.on("data", (data) => {
      text += data;
    });
    connection.on("end", () => resolve(text));
    connection.on("error", reject);
  });
}

const channel = saved("channel");
if (channel === "") {
  console.log("no lock was acquired");
} else {
  try {
    const { lost } = JSON.parse(await ask(channel));
    if (lost === "") console.log("released");
    else fail(lost);
  } catch (error) {
    fail(`the lock may have been lost: its keeper is gone (${error.message})`);
  }
}
