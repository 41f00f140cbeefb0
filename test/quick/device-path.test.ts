/** The operations of ucp between two cards: every contract on gaudi2, and lists of all memories on gaudi3, which stages what it cannot import. */

import { listContract } from '../contract/ucp/ucp-list.ts';
import { pipelineContract } from '../contract/ucp/ucp-pipeline.ts';
import { connectionKind } from '../fixtures/pair.ts';
import { ucpContracts } from './ucp-contracts.ts';

pipelineContract('staging, posix');
ucpContracts(connectionKind('all transports'));
listContract(connectionKind('gaudi3, all transports'));
