// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package verdict reads what `go test -v` printed and tells in a few lines what failed and why: a lane's output is long, a
// guest's or a daemon's log stands below the message that matters, and CI shows the end only.
//
// In: the text. Out: a line for each test that failed. It must not import anything of this module.
package verdict

import (
	"regexp"
	"strings"
)

// message is the beginning of what a test said: "file.go:12: text". What follows on further lines is a log, a diff, a dump.
var message = regexp.MustCompile(`^\S+\.go:\d+: `)

// ended is how the Go runtime begins to tell why it ends a program, a test's or one that a test runs.
var ended = regexp.MustCompile(`(?m)^(panic|fatal error): |^SIG[A-Z]+: `)

// Ended is the offset in a program's log at which the runtime begins to tell that, before it lists all goroutines; -1 in a log without it.
func Ended(log string) int {
	if at := ended.FindStringIndex(log); at != nil {
		return at[0]
	}
	return -1
}

const (
	kept  = 4   // messages of a test
	bytes = 400 // of a message
)

// Failed is a line for each test that failed, in the order in which they ended: its name, and the last messages that it wrote.
func Failed(out string) (failed []string) {
	var test string
	said := map[string][]string{}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if result, is := strings.CutPrefix(line, "--- FAIL: "); is {
			name, _, _ := strings.Cut(result, " ")
			failed = append(failed, name+": "+strings.Join(said[name], " | "))
			continue
		}
		if f := strings.Fields(line); len(f) == 3 && f[0] == "===" {
			test = f[2]
			continue
		}
		if ended.MatchString(line) || strings.HasPrefix(line, "FAIL\t") && strings.Contains(line, "build failed") {
			failed = append(failed, cut(line))
		}
		if message.MatchString(line) {
			all := append(said[test], cut(line))
			said[test] = all[max(0, len(all)-kept):]
		}
	}
	return failed
}

func cut(line string) string {
	if len(line) > bytes {
		return line[:bytes] + "..."
	}
	return line
}
