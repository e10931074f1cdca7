test_session.o: tests/unit/test_session.c tests/support/evaluate.h \
  engine/engine.h engine/base/buffer.h engine/base/span.h \
  engine/base/error.h engine/base/log.h tests/support/gguf_builder.h \
  engine/gguf/gguf.h engine/quant/quant.h engine/cpu/cpu.h \
  tests/support/suite.h

tests/support/evaluate.h:

engine/engine.h:

engine/base/buffer.h:

engine/base/span.h:

engine/base/error.h:

engine/base/log.h:

tests/support/gguf_builder.h:

engine/gguf/gguf.h:

engine/quant/quant.h:

engine/cpu/cpu.h:

tests/support/suite.h:
