suite.o: tests/support/suite.c tests/support/suite.h

tests/support/suite.h:
