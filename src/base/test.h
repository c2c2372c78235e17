/* test.h - what every unit test includes: cmocka with the headers it wants before it. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifndef TEST_KEEPS_MALLOC
#include "base/test_malloc.h"
#endif
