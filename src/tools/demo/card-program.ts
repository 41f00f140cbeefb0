/** Program of one process of the exchange: executes commands of its parent and replies. It ends on request or when its parent ends. */

import { isUcxError } from '../../ucs/type/error.ts';
import { CardHolder } from './card-holder.ts';
import { type Answers, type Command, END, type Reply } from './exchange-messages.ts';

let holder: Promise<CardHolder> | undefined;
let ending: Promise<void> | undefined;

async function run(command: Command): Promise<Answers[keyof Answers]> {
  if (command.kind === 'open') {
    holder = CardHolder.open(command);
    return (await holder).contact;
  }
  const card = await holder!;
  switch (command.kind) {
    case 'connect':
      await card.connect(command.cards);
      return null;
    case 'load':
      await card.load();
      return null;
    case 'exchange':
      return card.exchange(command.round);
    case 'digest':
      return card.digest();
    case 'measure':
      return card.measure(command.to, command.repetitions);
  }
}

async function answer(command: Command): Promise<void> {
  let reply: Reply;
  try {
    reply = { value: await run(command) };
  } catch (error) {
    // A failure caused by the end of this process is not an error; a bug ends the process with its stack.
    if (ending !== undefined) return;
    if (!isUcxError(error) && !(error instanceof Error && 'syscall' in error)) throw error;
    reply = { failure: isUcxError(error) ? `${error.message} (${error.code})` : error.message };
  }
  // If the parent has just died, the send fails; the disconnect event that follows ends this process.
  if (process.connected) process.send!(reply, undefined, undefined, () => {});
}

async function end(): Promise<void> {
  // The failure to open a card has already been reported, and there is nothing to close.
  const card = await holder?.catch(() => undefined);
  await card?.close();
  if (process.connected) process.disconnect();
}

// A terminal sends its signals to all processes of the group: the parent decides.
process.on('SIGINT', () => {});
process.on('disconnect', () => {
  ending ??= end();
});
process.on('message', (message: Command | typeof END) => {
  if (message === END) ending ??= end();
  else void answer(message);
});
