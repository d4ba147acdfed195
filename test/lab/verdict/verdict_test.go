// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package verdict

import (
	"slices"
	"strings"
	"testing"
)

func TestFailed(t *testing.T) {
	out := `=== RUN   TestA
=== RUN   TestA/One
    a_test.go:7: 2 tasks are left, want 1
        more of the same message
=== RUN   TestA/Two
    a_test.go:9: fine
=== NAME  TestA
    rig_test.go:124: the daemon's log:
        time=1 level=INFO msg=started
--- FAIL: TestA (1.00s)
    --- FAIL: TestA/One (0.50s)
    --- PASS: TestA/Two (0.50s)
FAIL	example.com/b [build failed]
panic: test timed out after 1m0s
fatal error: concurrent map writes
`
	want := []string{
		"TestA: rig_test.go:124: the daemon's log:",
		"TestA/One: a_test.go:7: 2 tasks are left, want 1",
		"FAIL\texample.com/b [build failed]",
		"panic: test timed out after 1m0s",
		"fatal error: concurrent map writes",
	}
	if got := Failed(out); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	many := "=== RUN   TestB\n" + strings.Repeat("    b_test.go:1: again\n", 9) + "    b_test.go:2: " + strings.Repeat("x", 999) + "\n--- FAIL: TestB (0s)\n"
	got := Failed(many)
	if len(got) != 1 || strings.Count(got[0], "again") != 3 || len(got[0]) > 600 || !strings.HasSuffix(got[0], "...") {
		t.Errorf("not the last few messages, short: %q", got)
	}
	if got := Failed("ok  \texample.com/a\t0.1s\n"); got != nil {
		t.Errorf("of a success: %q", got)
	}
	for log, want := range map[string]int{"": -1, "a panic: no\n": -1, "started\npanic: x\n\ngoroutine 1": 8, "fatal error: y": 0, "SIGSEGV: z": 0} {
		if at := Ended(log); at != want {
			t.Errorf("%q: %d, want %d", log, at, want)
		}
	}
}
