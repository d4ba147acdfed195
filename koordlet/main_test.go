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
		"upstream's flags": {
			Args: []string{"--check-config", "--config", "GOOD", "--feature-gates=AllAlpha=true,CPUBurst=false", "-kubelet-insecure-tls", "--logtostderr=true", "--addr", ":9316"},
			Out:  "configuration is valid",
		},
		"unknown gate": {Args: []string{"--check-config", "--config", "GOOD", "--feature-gates=Flying=true"}, Code: 1, Err: `feature gate "Flying" is not known`},
	})
}
