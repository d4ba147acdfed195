// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"strings"
	"testing"
)

// The exit code tells scripts what a command has found from a command that failed, which alone complains.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args     []string
		code     int
		out, err string
	}{
		"version":         {[]string{"--version"}, 0, "koordctl unreleased (no commit, go1.", ""},
		"help":            {nil, 0, "Available Commands:", ""},
		"doctor finds":    {[]string{"doctor", "--host-root", "EMPTY"}, 1, "FAIL    plugin", ""},
		"doctor as JSON":  {[]string{"doctor", "--host-root", "EMPTY", "-o", "json"}, 1, `"result": "FAIL"`, ""},
		"nothing to read": {[]string{"features", "--host-root", "EMPTY"}, 2, "", "koordctl: no status file in "},
		"unknown command": {[]string{"explian"}, 2, "", `koordctl: unknown command "explian"`},
		"unknown format":  {[]string{"diff", "-o", "xml"}, 2, "", `koordctl: --output "xml" is neither table nor json`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := make([]string, 0, len(c.args))
			for _, a := range c.args {
				args = append(args, strings.ReplaceAll(a, "EMPTY", t.TempDir()))
			}
			var stdout, stderr strings.Builder
			code := start(t.Context(), args, &stdout, &stderr)
			if code != c.code || !strings.Contains(stdout.String(), c.out) || !strings.HasPrefix(stderr.String(), c.err) || c.err == "" && stderr.Len() > 0 {
				t.Errorf("code %d, want %d\nstdout: %s\nstderr: %s", code, c.code, stdout.String(), stderr.String())
			}
		})
	}
}
