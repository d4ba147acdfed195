// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config_test

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/protocol"
	"github.com/koord-rt/koord-rt/api/strategy"
)

const head = "apiVersion: koord-rt.dev/v1alpha1\nkind: NRIConfig\n"

func nri() document[config.NRI] {
	return document[config.NRI]{config.KindNRI, config.Default, config.LoadNRI, (*config.NRI).Validate}
}

// The user's M5 alone is a complete configuration.
func TestLoadM5Alone(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../strategy/testdata/m05-nodeslo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, spec, err := config.LoadNRI(data)
	if err != nil {
		t.Fatal(err)
	}
	want, err := strategy.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, config.Default()) || spec == nil || !reflect.DeepEqual(*spec, want) {
		t.Errorf("got %+v, %+v", got, spec)
	}
	got, spec, err = config.LoadNRI([]byte(head + "pluginIndex: \"10\"\n---\n" + string(data)))
	if err != nil || got.PluginIndex != "10" || spec == nil || !reflect.DeepEqual(*spec, want) {
		t.Errorf("stream of both: %+v, %v, %v", got, spec, err)
	}
}

func TestLoadSettings(t *testing.T) {
	t.Parallel()
	got, spec, err := config.LoadNRI([]byte(head + `
host: {cgroupRoot: /host/cgroup, cdiDirs: [/etc/cdi]}
features: {llc: off, blkio: observe}
failClosed: [cpuset]
optOut: {namespaces: ["kube-*"]}
cede: [memory.high]
reservedCPUs: 0-1,8
limits: {devices: false, oomScoreAdjMin: 0}
metrics: {address: "127.0.0.1:9099"}
deadline: 500ms
driftInterval: 1m
realTime: false
strategy:
  resourceThresholdStrategy: {thresholds: {cpu-suppress-percent: 60}}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]any{
		"cgroupRoot": {got.Host.CgroupRoot, "/host/cgroup"},
		"proc":       {got.Host.Proc, "/proc"},
		"cdi":        {len(got.Host.CDIDirs), 1},
		"llc":        {got.ModeOf(protocol.FeatureLLC), config.ModeOff},
		"blkio":      {got.ModeOf(protocol.FeatureBlkIO), config.ModeObserve},
		"batch":      {got.ModeOf(protocol.FeatureBatch), config.ModeActive},
		"closed":     {strings.Join(got.FailClosed, ","), "cpuset"},
		"ceded":      {strings.Join(got.Cede, ","), "memory.high"},
		"devices":    {got.Limits.Devices, false},
		"core-sched": {got.Limits.CoreSched, true},
		"oom":        {*got.Limits.OOMScoreAdjMin, 0},
		"deadline":   {got.Deadline.Std(), 500 * time.Millisecond},
		"drift":      {got.DriftInterval.Std(), time.Minute},
		"real time":  {got.RealTime, false},
		"suppress":   {*spec.Threshold().CPUSuppressThresholdPercent, int64(60)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s = %v, want %v", name, pair[0], pair[1])
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	nri().refuses(t, map[string]refusal{
		"cut after key": {head + "limits:\n", strategy.ErrValue, []string{"line 3", "limits"}},
		"duration":      {head + "deadline: 1\n", strategy.ErrValue, []string{"line 3", "duration"}},
		"index":         {head + "pluginIndex: 5\n", strategy.ErrValue, []string{"quote it"}},
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	nri().finds(t, map[string]mistake[config.NRI]{
		"socket":     {func(c *config.NRI) { c.Socket = "nri.sock" }, "socket"},
		"run dir":    {func(c *config.NRI) { c.RunDir = "" }, "runDir"},
		"climb":      {func(c *config.NRI) { c.StateDir = "/var/../etc" }, "stateDir"},
		"cdi":        {func(c *config.NRI) { c.Host.CDIDirs = []string{"x"} }, "host.cdiDirs[0]"},
		"cri":        {func(c *config.NRI) { c.Host.CRIEndpoint = "tcp://x" }, "host.criEndpoint"},
		"memory QoS": {func(c *config.NRI) { c.Host.KubeletMemoryQoS = "perhaps" }, "host.kubeletMemoryQoS"},
		"kubepods":   {func(c *config.NRI) { c.Host.KubepodsRoot = "a/../.." }, "host.kubepodsRoot"},
		"name":       {func(c *config.NRI) { c.PluginName = "a b" }, "pluginName"},
		"index":      {func(c *config.NRI) { c.PluginIndex = "5" }, "pluginIndex"},
		"feature":    {func(c *config.NRI) { c.Features = map[string]config.Mode{"x": config.ModeOff} }, "features"},
		"mode":       {func(c *config.NRI) { c.Features = map[string]config.Mode{"llc": "on"} }, "features.llc"},
		"closed":     {func(c *config.NRI) { c.FailClosed = []string{"x"} }, "failClosed[0]"},
		"closed but off": {func(c *config.NRI) {
			c.Features = map[string]config.Mode{"llc": config.ModeOff}
			c.FailClosed = []string{"llc"}
		}, "mode is active"},
		"glob":          {func(c *config.NRI) { c.OptOut.Namespaces = []string{"["} }, "optOut.namespaces[0]"},
		"cede":          {func(c *config.NRI) { c.Cede = []string{"a/b"} }, "cede[0]"},
		"cpus":          {func(c *config.NRI) { c.ReservedCPUs = "3-1" }, "reservedCPUs"},
		"cdi mode":      {func(c *config.NRI) { c.CDI = "yes" }, "cdi"},
		"formula":       {func(c *config.NRI) { c.WeightFormula = "cubic" }, "weightFormula"},
		"oom order":     {func(c *config.NRI) { c.Limits.OOMScoreAdjMax = -999 }, "limits.oomScoreAdjMax"},
		"oom least":     {func(c *config.NRI) { c.Limits.OOMScoreAdjMin = new(-1001) }, "limits.oomScoreAdjMin"},
		"oom crossed":   {func(c *config.NRI) { c.Limits.OOMScoreAdjMin, c.Limits.OOMScoreAdjMax = new(5), 4 }, "limits.oomScoreAdjMax"},
		"latency":       {func(c *config.NRI) { c.Limits.IOLatencyMin = -1 }, "limits.ioLatencyMin"},
		"protection":    {func(c *config.NRI) { c.Limits.MemoryNodePercentMax = 101 }, "limits.memoryNodePercentMax"},
		"burst":         {func(c *config.NRI) { c.Limits.CPUBurstPercentMax = 10001 }, "limits.cpuBurstPercentMax"},
		"mba":           {func(c *config.NRI) { c.Limits.MBAPercentMax = 0 }, "limits.mbaPercentMax"},
		"share":         {func(c *config.NRI) { c.Limits.NodeCPUSetMaxPercent = 101 }, "limits.nodeCPUSetMaxPercent"},
		"public":        {func(c *config.NRI) { c.Metrics.Address = "0.0.0.0:9099" }, "metrics.address"},
		"all":           {func(c *config.NRI) { c.Metrics.Address = ":9099" }, "metrics.address"},
		"host name":     {func(c *config.NRI) { c.Metrics.Address = "node:9099" }, "metrics.address"},
		"relative unix": {func(c *config.NRI) { c.Metrics.Address = "unix:x" }, "metrics.address"},
		"port":          {func(c *config.NRI) { c.Metrics.Address = "127.0.0.1:99999" }, "metrics.address"},
		"level":         {func(c *config.NRI) { c.Log.Level = "trace" }, "log.level"},
		"deadline":      {func(c *config.NRI) { c.Deadline = config.Duration(2 * time.Second) }, "deadline"},
		"drift often":   {func(c *config.NRI) { c.DriftInterval = config.Duration(999 * time.Millisecond) }, "driftInterval"},
		"drift seldom":  {func(c *config.NRI) { c.DriftInterval = config.Duration(11 * time.Minute) }, "driftInterval"},
		"timeout":       {func(c *config.NRI) { c.RequestTimeout = config.Duration(time.Second) }, "less than requestTimeout"},
		"reconnect":     {func(c *config.NRI) { c.Reconnect.Max = config.Duration(time.Millisecond) }, "reconnect.max"},
	})
	for _, address := range []string{"", "unix:/run/x.sock", "127.0.0.1:0", "[::1]:9099", "localhost:1"} {
		cfg := config.Default()
		cfg.Metrics.Address = address
		if errs := cfg.Validate(); len(errs) > 0 {
			t.Errorf("%q: %v", address, errs)
		}
	}
}

func FuzzLoadNRI(f *testing.F) {
	f.Add([]byte(head + "limits: {devices: false}\n---\napiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeSLO\nspec: {}\n"))
	f.Add([]byte(head + "strategy: {cpuBurstStrategy: {policy: auto}}\nfeatures: {llc: observe}\n"))
	nri().fuzz(f)
}
