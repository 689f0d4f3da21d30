/*
 * libFuzzer on the reader of hand-ins: whatever a file holds, it must not be read beyond
 * its end, and every word about it must be printable. The length chooses how the file
 * is called, so that both right and wrong names are tried.
 */
#define main grade_main
#include "../../grading/grade.c"
#undef main

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_be_printable(const char *text)
{
    for (; *text; text++)
        if ((*text < ' ' && *text != '\n') || *text > '~')
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rubric rubric;
    static struct reference reference;
    static struct handin h;

    if (rubric.count == 0) {
        read_rubric(&rubric, "grading/rubric.txt");
        read_reference(&reference, "grading/reference.txt");
    }
    char *text =
        malloc(size + 1); /* of just this size, so that the sanitizer sees more */
    if (!text)
        return 0;
    memcpy(text, data, size);
    memset(&h, 0, sizeof(h));
    strcpy(h.file, size % 16 ? "handin-20260001.txt" : "handin-.txt");
    check_handin(&h, text, size, &rubric, &reference);
    must_be_printable(h.refused);
    for (int p = 0; p < PARTS; p++) {
        part_right(&h, &rubric, p);
        for (int i = 0; i < h.reasons[p] && i < REASONS; i++)
            must_be_printable(h.reason[p][i]);
    }
    free(h.lines);
    free(text);
    return 0;
}
