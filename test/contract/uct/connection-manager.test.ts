/** The connection managers of this library fulfil the contract. */

import { tcpConnectionManager } from '../../../src/uct/tcp/cm/manager.ts';
import { describeConnectionManager } from './connection-manager.ts';

describeConnectionManager('tcp', tcpConnectionManager);
