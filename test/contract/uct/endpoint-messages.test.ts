import { keyFile } from '../../fixtures/transports/key-files.ts';
import { endpointMessagesContract } from './endpoint-messages.ts';
import { IB_TITLE, openIb, openPosix, openSelf, openTcp } from './uct-implementations.ts';

endpointMessagesContract('self', openSelf);
endpointMessagesContract('posix', openPosix);
endpointMessagesContract(IB_TITLE, (log) => openIb(log), true);
endpointMessagesContract(
  'tcp',
  (log) => openTcp(log, { TCP_SNDBUF: '16k', TCP_RCVBUF: '16k', TCP_TX_SEG_SIZE: '8k' }),
  true,
);
const SECURITY = { TCP_SECURITY: 'encrypt', TCP_KEY_FILE: keyFile() };
endpointMessagesContract(
  'tcp with encryption',
  (log) => openTcp(log, { ...SECURITY, TCP_SNDBUF: '128k', TCP_RCVBUF: '128k' }),
  true,
);
endpointMessagesContract(
  'tcp with encryption and the smallest buffers',
  (log) => openTcp(log, { ...SECURITY, TCP_SNDBUF: '16k', TCP_RCVBUF: '16k', TCP_RX_SEG_SIZE: '8k' }),
  true,
);
endpointMessagesContract('posix with the smallest rings', (log) =>
  openPosix(log, { POSIX_FIFO_SIZE: '2', POSIX_SEG_COUNT: '1', POSIX_FIFO_ELEM_SIZE: '64', POSIX_SEG_SIZE: '8256' }),
);
