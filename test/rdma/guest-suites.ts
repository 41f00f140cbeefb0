/**
 * What `npm run test:rdma` runs in the guest after its program: the contract suites of the transport rc and of operations over it, on two devices of
 * rdma_rxe. Prints one line for each suite, with the reasons why cases are skipped; a failure ends it with code 1.
 */

import { join } from 'node:path';
import {
  type Reporter,
  type SerializedError,
  startVitest,
  type TestCase,
  type TestModule,
  type TestSuite,
} from 'vitest/node';

import { DEVICES } from './guest.ts';

/** The repository: this module runs from the output of the compiler. */
const ROOT = join(import.meta.dirname, '../../..');
/** Titles of the suites that use the devices. */
const ON_DEVICES = /ib on |over 'RDMA'/;
const SUITES =
  '{uct/{memory-domain,endpoint-{atomics,messages,rma}},ucp/ucp-{active-message,atomic,list,protection,put-get,stream,tag}}.test.ts';
/** Time for a case. It only ends what hangs: the longest takes 20 s on an idle machine, and several times as long on a busy one. */
const CASE_MS = 120_000;
const CACHE = '/tmp/vite';

/** Prints suites when they have ended. */
class LineReporter implements Reporter {
  onTestModuleEnd(module: TestModule): void {
    for (const error of module.errors())
      console.log(`FAILED ${module.relativeModuleId}: ${error.stack ?? error.message}`);
  }

  /** Also of a process of tests that has ended too early. */
  onTestRunEnd(_modules: readonly TestModule[], errors: readonly SerializedError[]): void {
    for (const error of errors) console.log(`FAILED: ${error.stack ?? error.message}`);
  }

  onTestSuiteResult(suite: TestSuite): void {
    if (suite.parent.type === 'suite') return;
    const cases = [...suite.children.allTests()].filter(({ fullName }) => ON_DEVICES.test(fullName));
    if (cases.length > 0) report(suite, cases);
  }
}

function report(suite: TestSuite, cases: readonly TestCase[]): void {
  const reasons = new Map<string, number>();
  let passed = 0;
  let ms = 0;
  for (const each of cases) {
    const result = each.result();
    ms += each.diagnostic()?.duration ?? 0;
    if (result.state === 'passed') passed += 1;
    else if (result.state === 'skipped') {
      const reason = result.note ?? 'without a reason';
      reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    }
    for (const error of result.errors ?? []) console.log(`FAILED ${each.fullName}: ${error.stack ?? error.message}`);
  }
  const skipped = [...reasons].map(([reason, count]) => `, ${count} skipped: ${reason}`).join('');
  const outcome =
    passed + [...reasons.values()].reduce((sum, count) => sum + count, 0) === cases.length ? 'ok' : 'FAILED';
  console.log(`${outcome} ${suite.name}: ${passed} of ${cases.length} passed${skipped} (${Math.round(ms / 1000)} s)`);
}

process.env['GAUDI_UCX_TEST_RDMA_DEVICES'] = DEVICES.join(',');
const vitest = await startVitest(
  'test',
  process.argv.slice(2),
  {
    root: ROOT,
    config: false,
    watch: false,
    include: [`test/contract/${SUITES}`],
    testNamePattern: ON_DEVICES,
    env: { UCX_GAUDI_DRIVER: 'emulator' },
    pool: 'forks',
    isolate: false,
    maxWorkers: 1,
    testTimeout: CASE_MS,
    hookTimeout: CASE_MS,
    reporters: [new LineReporter()],
  },
  { cacheDir: CACHE },
);
await vitest.close();
const isGood = (process.exitCode ?? 0) === 0;
console.log(isGood ? 'all suites passed' : 'suites failed');
process.exit(isGood ? 0 : 1);
