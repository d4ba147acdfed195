// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"testing"

	"github.com/koord-rt/koord-rt/daemon/program/programtest"
	"github.com/koord-rt/koord-rt/nri-plugin/internal/setup"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	programtest.CommandLine(t, koordNRI(), "NRIConfig", map[string]programtest.Case{
		"flag of the proxy": {Args: []string{"--backend-runtime-mode", "Docker"}, Code: 2, Err: "backend-runtime-mode"},
		"help: default":     {Args: []string{"--help"}, Err: "(default /etc/koord-rt/nri.yaml, which may be absent)"},
	})
}

// A second live connection of one plugin breaks every container creation on the node.
func TestSecondInstance(t *testing.T) {
	t.Parallel()
	programtest.SecondInstance(t, koordNRI(), "NRIConfig", setup.Writer)
}
