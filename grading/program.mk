# What grade-program needs, built here of the suite's own sources: for each of 05 to 07 the
# reference and a peer that lies, the spy, and common/ as a library.
SAMPLES := $(wildcard 0[567]_*)
CFLAGS  := -std=c11 -O2 -Wall -Wextra -Wshadow -Wconversion -Icommon
COMMON  := $(wildcard common/*.[ch])
B       := grading/build

all: $(B)/libcommon.a $(B)/spy.so $(foreach s,$(SAMPLES),$(foreach k,reference liar,$(B)/$k-$(word 1,$(subst _, ,$s))))

$(B)/%.o: common/%.c $(COMMON)
	@mkdir -p $(B)
	gcc $(CFLAGS) -c -o $@ $<

$(B)/libcommon.a: $(patsubst common/%.c,$(B)/%.o,$(wildcard common/*.c))
	ar rcs $@ $^

$(B)/spy.so: grading/spy.c $(COMMON)
	@mkdir -p $(B)
	gcc $(CFLAGS) -fPIC -shared -fvisibility=hidden -o $@ $< \
		common/layout.c common/data.c common/report.c common/hints.c -libverbs

.SECONDEXPANSION:
$(B)/reference-%: $$(wildcard $$*_*/*.c) $(B)/libcommon.a
	gcc $(CFLAGS) -o $@ $^ -libverbs

$(B)/liar-%: $$(wildcard $$*_*/*.c) grading/liar.c $(B)/libcommon.a
	gcc $(CFLAGS) -o $@ $^ -libverbs -Wl,--wrap=pattern_fill,--wrap=pattern_check
