/** The counters of a process in its metrics outlive its contexts: a program that makes a new context after each failure is seen to fail. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Registry } from 'prom-client';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { useContexts } from '../../fixtures/contexts.ts';
import { installedLibucp } from '../../fixtures/libucp/libucp.ts';
import { useCommandLine } from '../../fixtures/tools/command-line.ts';

const cli = useCommandLine();
let XDG_RUNTIME_DIR: string;
beforeEach(() => {
  XDG_RUNTIME_DIR = mkdtempSync(join(tmpdir(), 'gux-'));
});
afterEach(() => rmSync(XDG_RUNTIME_DIR, { recursive: true }));

/** The value of a metric, and the number of its series. */
function valueIn(text: string, name: string): { readonly value: number; readonly series: number } {
  const lines = text.split('\n').filter((line) => line.startsWith(`${name}{`) || line.startsWith(`${name} `));
  return { value: lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0), series: lines.length };
}

describe.each([
  ['native', true],
  ['libucx', installedLibucp().libucp !== undefined],
] as const)('the counters of a process over the engine %s', (engine, isThere) => {
  const fixture = useContexts(engine);

  it.skipIf(!isThere)('rise with each context that has failed and is closed (needs libucp)', async () => {
    const node = fixture.node();
    const registry = new Registry();
    const exported = (): Promise<string> => cli.outputHere(['metrics', '--once'], { XDG_RUNTIME_DIR });
    const open = async () => {
      const stack = await fixture.openOn(node, { env: { XDG_RUNTIME_DIR } });
      stack.context.metrics(registry);
      return stack;
    };
    const tag = 1;
    let stack = await open();
    const before = valueIn(await exported(), 'ucx_process_contexts_total').value;
    const operations: number[] = [];
    const failuresBefore = valueIn(await exported(), 'ucx_process_operation_failures_total').value;
    for (let round = 1; round <= 4; round++) {
      const received = stack.worker.tagRecv(new Uint8Array(8), { tag });
      await Promise.all([stack.endpoint.tagSend(new Uint8Array(16), { tag }), expect(received).rejects.toThrow()]);
      // Cancelled by the close, which is not a failure.
      const pending = expect(stack.worker.tagRecv(new Uint8Array(8), { tag: 7 })).rejects.toThrow();
      await stack.context.close();
      await pending;
      stack = await open();
      for (const text of [await exported(), await registry.metrics()]) {
        const failures = valueIn(text, 'ucx_process_operation_failures_total');
        const isExported = text.includes('ucx_process_answers');
        expect(failures).toEqual({ value: round + (isExported ? failuresBefore : 0), series: 1 });
        expect(valueIn(text, 'ucx_process_contexts_total').value).toBe(round + (isExported ? before : 1));
        // The new context has not failed, and no closed one is shown.
        expect(valueIn(text, 'ucx_operation_failures_total')).toEqual({ value: 0, series: 1 });
      }
      operations.push(valueIn(await registry.metrics(), 'ucx_process_operations_total').value);
    }
    expect(operations[0]).toBeGreaterThan(0);
    expect(operations).toEqual([...operations].sort((one, other) => one - other));
    expect(operations.at(-1)).toBeGreaterThanOrEqual(4);
  });
});
