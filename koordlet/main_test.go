// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"testing"

	"github.com/koord-rt/koord-rt/daemon/program/programtest"
)

func TestCommandLine(t *testing.T) {
	t.Parallel()
	programtest.CommandLine(t, koordlet(), "KoordletConfig", map[string]programtest.Case{
		"help: default": {Args: []string{"--help"}, Err: "(default /etc/koord-rt/koordlet.yaml, which may be absent)"},
	})
}
