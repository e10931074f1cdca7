test_process.o: tests/http/test_process.c tests/support/daemon_process.h \
  tests/support/http_client.h engine/base/buffer.h engine/base/span.h \
  tests/support/patience.h tests/support/suite.h

tests/support/daemon_process.h:

tests/support/http_client.h:

engine/base/buffer.h:

engine/base/span.h:

tests/support/patience.h:

tests/support/suite.h:
