// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package lab holds what every lane of the test lab shares: the versions of the
// real parts (containerd, runc, kernels ...) in versions.env, free ports, what a
// log says of requests that were answered late, and the time between two looks.
//
// Input: the embedded file, a log. Output: a table of versions, ports, a count. It imports the standard
// library only; it must not import any package under test.
package lab

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed versions.env
var versionsEnv string

// Versions returns the KEY=VALUE lines of versions.env.
func Versions() (map[string]string, error) {
	return ParseVersions(versionsEnv)
}

// ParseVersions parses KEY=VALUE lines; empty lines and lines starting with # are
// skipped. A line of another shape or a repeated key is an error naming the line.
func ParseVersions(text string) (map[string]string, error) {
	out := map[string]string{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || key == "" || value == "" {
			return nil, fmt.Errorf("parse versions line %d: want KEY=VALUE, have %q", i+1, line)
		}
		if _, dup := out[key]; dup {
			return nil, fmt.Errorf("parse versions line %d: key %s is repeated", i+1, key)
		}
		out[key] = value
	}
	return out, nil
}
