// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/cri-proxy/internal/setup"
	"github.com/koord-rt/koord-rt/daemon/program/programtest"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	check := func(flags ...string) []string {
		return append([]string{"--check-config", "--config", "GOOD"}, flags...)
	}
	programtest.CommandLine(t, koordRuntimeProxy(), "ProxyConfig", map[string]programtest.Case{
		"help: default":   {Args: []string{"--help"}, Err: "(default /etc/koord-rt/proxy.yaml, which may be absent)"},
		"help: own flags": {Args: []string{"--help"}, Err: "-koord-runtimeproxy-endpoint string"},
		"help: its value": {Args: []string{"--help"}, Err: `(default "/var/run/koord-runtimeproxy/runtimeproxy.sock")`},
		"mode by flag":    {Args: check("--backend-runtime-mode", "Docker"), Out: "valid: GOOD"},
		"bad mode":        {Args: check("--backend-runtime-mode=containerd"), Code: 1, Err: "koord-runtime-proxy: command line: "},
		"bad mode names":  {Args: check("--backend-runtime-mode=containerd"), Code: 1, Err: "backendMode"},
		"default given":   {Args: check("--backend-runtime-mode=Containerd"), Out: "valid: GOOD"},
		"calls itself":    {Args: check("--koord-runtimeproxy-endpoint", "/var/run/containerd/containerd.sock"), Code: 1, Err: "call itself"},
		"empty by flag":   {Args: check("--runtime-hook-server-key="), Code: 1, Err: "hooks.serverKey"},
	})
}

// Every flag over a setting of the file reaches that setting.
func TestFlagsReachTheConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: koord-rt.dev/v1alpha1\nkind: ProxyConfig\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := koordRuntimeProxy()
	settings := config.DefaultProxy()
	want := settings.Flags()
	if len(p.Flags) != len(want) || len(want) < 6 {
		t.Fatalf("%d flags for %d settings", len(p.Flags), len(want))
	}
	for i, f := range p.Flags {
		if f.Name != want[i].Name || f.Help != want[i].Help || f.Default != *want[i].Value {
			t.Errorf("flag %+v, setting %s: %q", f, want[i].Name, *want[i].Value)
		}
		// A value that no setting accepts is refused with the command line as its place, so it has arrived.
		if f.Name == "runtime-hook-server-val" {
			continue // any text is good
		}
		_, err := p.Load(file, map[string]string{f.Name: "\x00"})
		if err == nil || !strings.Contains(err.Error(), "command line: ") {
			t.Errorf("%s is not heard: %v", f.Name, err)
		}
	}
}

// Two proxies would fight for one socket.
func TestSecondInstance(t *testing.T) {
	t.Parallel()
	programtest.SecondInstance(t, koordRuntimeProxy(), "ProxyConfig", setup.Writer)
}
