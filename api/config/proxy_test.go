// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
)

const proxyHead = "apiVersion: koord-rt.dev/v1alpha1\nkind: ProxyConfig\n"

func proxy() document[config.Proxy] {
	return document[config.Proxy]{config.KindProxy, config.DefaultProxy, config.LoadProxy, (*config.Proxy).Validate}
}

// The flags and their defaults are those of upstream's binary (facts §9.1).
func TestProxyFlags(t *testing.T) {
	t.Parallel()
	c := config.DefaultProxy()
	got := map[string]string{}
	for _, f := range c.Flags() {
		got[f.Name] = *f.Value
		if f.Help == "" {
			t.Errorf("%s has no help", f.Name)
		}
		*f.Value = "set by " + f.Name
	}
	want := map[string]string{
		"koord-runtimeproxy-endpoint": "/var/run/koord-runtimeproxy/runtimeproxy.sock", "remote-runtime-service-endpoint": "/var/run/containerd/containerd.sock",
		"remote-image-service-endpoint": "", "backend-runtime-mode": "Containerd",
		"runtime-hook-server-key": "runtimeproxy.koordinator.sh/skip-hookserver", "runtime-hook-server-val": "true",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("flags = %v", got)
	}
	for flag, value := range map[string]string{
		"koord-runtimeproxy-endpoint": c.Endpoint, "remote-runtime-service-endpoint": c.RuntimeEndpoint, "remote-image-service-endpoint": c.ImageEndpoint,
		"backend-runtime-mode": string(c.BackendMode), "runtime-hook-server-key": c.Hooks.ServerKey, "runtime-hook-server-val": c.Hooks.ServerValue,
	} {
		if value != "set by "+flag {
			t.Errorf("%s sets another setting: %q", flag, value)
		}
	}
}

func TestLoadProxySettings(t *testing.T) {
	t.Parallel()
	got, spec, err := config.LoadProxy([]byte(proxyHead + `
endpoint: unix:///run/p.sock
runtimeEndpoint: unix:/run/c.sock
hooks: {dir: /etc/hooks, merge: replaces, servers: {koordlet: yields}, timeout: 2s, allowRemote: true}
host: {cgroupRoot: /host/cgroup}
features: {llc: off}
failClosed: [cpuset]
cede: [memory.high]
limits: {devices: false}
strategy:
  resourceThresholdStrategy: {thresholds: {cpu-suppress-percent: 60}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]any{
		"listen":   {got.ListenPath(), "/run/p.sock"},
		"runtime":  {got.RuntimePath(), "/run/c.sock"},
		"image":    {got.ImagePath(), "/run/c.sock"},
		"mode":     {got.BackendMode, config.BackendContainerd},
		"dir":      {got.Hooks.Dir, "/etc/hooks"},
		"key":      {got.Hooks.ServerKey, "runtimeproxy.koordinator.sh/skip-hookserver"},
		"merge":    {got.Hooks.MergeOf("other"), config.HookReplaces},
		"koordlet": {got.Hooks.MergeOf("koordlet"), config.HookYields},
		"timeout":  {got.Hooks.Timeout.Std(), 2 * time.Second},
		"remote":   {got.Hooks.AllowRemote, true},
		"llc":      {got.ModeOf(protocol.FeatureLLC), config.ModeOff},
		"batch":    {got.ModeOf(protocol.FeatureBatch), config.ModeActive},
		"closed":   {strings.Join(got.FailClosed, ","), "cpuset"},
		"ceded":    {strings.Join(got.Cede, ","), "memory.high"},
		"cgroups":  {got.Host.CgroupRoot, "/host/cgroup"},
		"cap":      {got.Limits.Devices, false},
		"metrics":  {got.Metrics.Address, "unix:/run/koord-rt/proxy-metrics.sock"},
		"suppress": {*spec.Threshold().CPUSuppressThresholdPercent, int64(60)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s = %v, want %v", name, pair[0], pair[1])
		}
	}
	const docker = proxyHead + "backendMode: Docker\nruntimeEndpoint: /var/run/docker.sock\n"
	if got, _, err := config.LoadProxy([]byte(docker)); err != nil || got.BackendMode != config.BackendDocker {
		t.Errorf("docker: %v", err)
	}
}

func TestLoadProxyRefuses(t *testing.T) {
	t.Parallel()
	proxy().refuses(t, map[string]refusal{
		"nri's":       {head, config.ErrDocument, []string{"ProxyConfig"}},
		"hooks":       {proxyHead + "hooks:\n  dri: /x\n", strategy.ErrUnknownKey, []string{"line 4"}},
		"key of nri":  {proxyHead + "pluginIndex: \"05\"\n", strategy.ErrUnknownKey, []string{"pluginIndex"}},
		"bad setting": {proxyHead + "hooks: {merge: both}\n", config.ErrSetting, []string{"hooks.merge"}},
	})
}

func TestValidateProxy(t *testing.T) {
	t.Parallel()
	proxy().finds(t, map[string]mistake[config.Proxy]{
		"endpoint":    {func(c *config.Proxy) { c.Endpoint = "p.sock" }, "endpoint"},
		"too long":    {func(c *config.Proxy) { c.Endpoint = "/" + strings.Repeat("a", 107) }, "at most 107"},
		"runtime":     {func(c *config.Proxy) { c.RuntimeEndpoint = "tcp://x:1" }, "runtimeEndpoint"},
		"image":       {func(c *config.Proxy) { c.ImageEndpoint = "/a/../b" }, "imageEndpoint"},
		"loop":        {func(c *config.Proxy) { c.Endpoint = "unix://" + c.RuntimeEndpoint }, "call itself"},
		"image loop":  {func(c *config.Proxy) { c.ImageEndpoint = c.Endpoint }, "call itself"},
		"mode":        {func(c *config.Proxy) { c.BackendMode = "containerd" }, "backendMode"},
		"docker":      {func(c *config.Proxy) { c.BackendMode, c.ImageEndpoint = "Docker", "/x" }, "mode Docker"},
		"dir":         {func(c *config.Proxy) { c.Hooks.Dir = "hooks" }, "hooks.dir"},
		"key":         {func(c *config.Proxy) { c.Hooks.ServerKey = "" }, "hooks.serverKey"},
		"merge":       {func(c *config.Proxy) { c.Hooks.Merge = "" }, "hooks.merge"},
		"server":      {func(c *config.Proxy) { c.Hooks.Servers = map[string]config.HookMerge{"a/b": "yields"} }, "hooks.servers"},
		"server mode": {func(c *config.Proxy) { c.Hooks.Servers = map[string]config.HookMerge{"a": "both"} }, "hooks.servers.a"},
		"timeout":     {func(c *config.Proxy) { c.Hooks.Timeout = 1 }, "hooks.timeout"},
		"run dir":     {func(c *config.Proxy) { c.RunDir = "" }, "runDir"},
		"feature":     {func(c *config.Proxy) { c.Features = map[string]config.Mode{"x": "off"} }, "features"},
		"cede":        {func(c *config.Proxy) { c.Cede = []string{"a/b"} }, "cede[0]"},
		"limit":       {func(c *config.Proxy) { c.Limits.MBAPercentMax = 0 }, "limits.mbaPercentMax"},
		"metrics":     {func(c *config.Proxy) { c.Metrics.Address = ":1" }, "metrics.address"},
		"deadline":    {func(c *config.Proxy) { c.Deadline = 0 }, "deadline"},
		"reconnect":   {func(c *config.Proxy) { c.Reconnect.Max = 0 }, "reconnect.max"},
	})
}

func FuzzLoadProxy(f *testing.F) {
	f.Add([]byte(proxyHead + "hooks: {merge: replaces, servers: {a: yields}}\nlimits: {devices: false}\n"))
	f.Add([]byte(proxyHead + "endpoint: unix:x\nbackendMode: Docker\n"))
	proxy().fuzz(f, func(t *testing.T, c config.Proxy) {
		if c.ListenPath() == c.RuntimePath() || c.ImagePath() == "" {
			t.Fatal("endpoints")
		}
	})
}
