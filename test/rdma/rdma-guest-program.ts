/**
 * What `npm run test:rdma` runs in the guest: the binding to libibverbs, the transport rc and the engine over libucp on two devices of rdma_rxe, `rxe0` and `rxe1`. Prints
 * one line per check; a failure ends it with code 1. Not a test file: no test runner is needed in the guest.
 */

import { Context, isUcxError } from '../../src/index.ts';
import { failureCount } from './guest.ts';
import { libucxChecks } from './libucx-checks.ts';
import { limitsChecks } from './limits-checks.ts';
import { pingpongChecks } from './pingpong-checks.ts';
import { transportChecks } from './transport-checks.ts';
import { verbsChecks } from './verbs-checks.ts';

if (process.argv[2] === 'open') await openContext();
else {
  await verbsChecks();
  await pingpongChecks();
  await transportChecks();
  await limitsChecks(process.argv[1]!);
  await libucxChecks();
  const failures = failureCount();
  console.log(failures === 0 ? 'all checks passed' : `${failures} checks failed`);
  process.exit(failures === 0 ? 0 : 1);
}

/** Opens a worker over rc alone, and says how that has ended. */
async function openContext(): Promise<void> {
  const env = { UCX_IB_DRIVER: 'verbs', UCX_TLS: 'rc', UCX_GAUDI_DRIVER: 'emulator', UCX_GAUDI_EMULATOR_CARDS: '1' };
  try {
    const context = await Context.create({ env, configDirectories: [] });
    context.worker();
    await context.close();
    console.log('opened');
  } catch (error) {
    if (!isUcxError(error)) throw error;
    console.log(`${error.code} ${error.message}`);
  }
  process.exit(0);
}
