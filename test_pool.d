test_pool.o: tests/unit/test_pool.c engine/exec/pool.h \
  engine/base/error.h engine/cpu/cpu.h tests/support/patience.h \
  tests/support/random.h engine/base/f16.h tests/support/suite.h

engine/exec/pool.h:

engine/base/error.h:

engine/cpu/cpu.h:

tests/support/patience.h:

tests/support/random.h:

engine/base/f16.h:

tests/support/suite.h:
