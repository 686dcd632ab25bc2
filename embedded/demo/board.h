/*
 * What the demos want from a board.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef BOARD_H
#define BOARD_H

#ifdef __cplusplus
extern "C" {
#endif

/* Writes text to the console, without the heap. */
void board_say(const char *text);
/* Writes one byte, whatever it is. */
void board_put(char byte);
/* Ends the simulation. */
void board_exit(int status);

/* The memory of the heap. */
extern char board_heap_start[], board_heap_end[];
/* The stack that main runs on. */
extern char board_stack_low[], board_stack_high[];

#ifdef __cplusplus
}
#endif
#endif
