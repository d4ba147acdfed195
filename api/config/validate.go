// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// ErrSetting is wrapped by every error of Validate.
var ErrSetting = errors.New("bad setting")

// maxHandler is the runtime's default limit per plugin request; a plugin past it is dropped from the runtime.
const maxHandler = 2 * time.Second

// Validate checks every setting. Each error names the key, the value and what is wanted; their order is fixed.
func (c NRI) Validate() []error {
	k := &checker{}
	k.file("socket", c.Socket, false)
	k.plugin(&c)
	k.node(&c.Node)
	k.times(&c)
	return k.errs
}

// checker gathers errors.
type checker struct {
	errs []error
}

func (k *checker) fail(key string, value any, want string) {
	text := fmt.Sprint(value)
	if len(text) > 120 {
		text = text[:120]
	}
	k.errs = append(k.errs, fmt.Errorf("%s: %w: %q, want %s", key, ErrSetting, text, want))
}

// node checks what the node programs have in common.
func (k *checker) node(c *Node) {
	k.paths(c)
	k.knobs(c)
	k.features(c)
	k.limits(&c.Limits)
	k.output(c)
	k.within("deadline", c.Deadline, 10*time.Millisecond, maxHandler-time.Millisecond)
	k.within("driftInterval", c.DriftInterval, MinDriftInterval, MaxDriftInterval)
}

// file checks one file name. Only what may be absent on a node may be empty.
func (k *checker) file(key, value string, optional bool) {
	if (value != "" || !optional) && !cleanAbsolute(value) {
		k.fail(key, value, "an absolute path without ..")
	}
}

func (k *checker) paths(c *Node) {
	for _, p := range []struct {
		key, value string
		optional   bool
	}{
		{"runDir", c.RunDir, false}, {"stateDir", c.StateDir, false},
		{"strategyFile", c.StrategyFile, true},
		{"host.cgroupRoot", c.Host.CgroupRoot, false}, {"host.proc", c.Host.Proc, false},
		{"host.sys", c.Host.Sys, false}, {"host.resctrl", c.Host.Resctrl, true}, {"host.dev", c.Host.Dev, false},
		{"host.kubeletCPUManagerState", c.Host.KubeletCPUManagerState, true},
		{"host.kubeletMemoryManagerState", c.Host.KubeletMemoryManagerState, true},
		{"host.criEndpoint", strings.TrimPrefix(c.Host.CRIEndpoint, "unix://"), true},
	} {
		k.file(p.key, p.value, p.optional)
	}
	for i, dir := range c.Host.CDIDirs {
		k.file(fmt.Sprintf("host.cdiDirs[%d]", i), dir, false)
	}
	if c.Host.CRIEndpoint != "" && !strings.HasPrefix(c.Host.CRIEndpoint, "unix:///") {
		k.fail("host.criEndpoint", c.Host.CRIEndpoint, "unix:///path")
	}
	if root := c.Host.KubepodsRoot; root != "" && !cleanAbsolute("/"+strings.TrimPrefix(root, "/")) {
		k.fail("host.kubepodsRoot", root, "a path without ..")
	}
	k.oneOf("host.kubeletMemoryQoS", c.Host.KubeletMemoryQoS, MemoryQoSAuto, MemoryQoSYes, MemoryQoSNo)
}

// cleanAbsolute is true for absolute paths that cannot climb.
func cleanAbsolute(p string) bool {
	return path.IsAbs(p) && !slices.Contains(strings.Split(p, "/"), "..") && !strings.ContainsRune(p, 0)
}

func (k *checker) plugin(c *NRI) {
	if c.PluginName == "" || len(c.PluginName) > 63 || strings.ContainsFunc(c.PluginName, notNameRune) {
		k.fail("pluginName", c.PluginName, "1..63 letters, digits, dots, underscores and dashes")
	}
	if len(c.PluginIndex) != 2 || strings.ContainsFunc(c.PluginIndex, func(r rune) bool { return r < '0' || r > '9' }) {
		k.fail("pluginIndex", c.PluginIndex, "two digits in quotes")
	}
}

func (k *checker) knobs(c *Node) {
	k.oneOf("weightFormula", c.WeightFormula, WeightAuto, WeightLinear, WeightQuadratic)
	k.oneOf("cdi", c.CDI, CDIAuto, CDIOn, CDIOff)
	if c.ReservedCPUs != "" {
		if err := protocol.CheckCPUList(c.ReservedCPUs); err != nil {
			k.errs = append(k.errs, fmt.Errorf("reservedCPUs: %w: %w", ErrSetting, err))
		}
	}
	for i, knob := range c.Cede {
		if knob == "" || strings.ContainsFunc(knob, notNameRune) {
			k.fail(fmt.Sprintf("cede[%d]", i), knob, "a knob name such as cpuset.cpus")
		}
	}
}

func (k *checker) features(c *Node) {
	for _, name := range slices.Sorted(maps.Keys(c.Features)) {
		if _, ok := protocol.ParseFeature(name); !ok {
			k.fail("features", name, "one of "+featureNames())
			continue
		}
		k.oneOf("features."+name, string(c.Features[name]), string(ModeActive), string(ModeObserve), string(ModeOff))
	}
	for i, name := range c.FailClosed {
		key := fmt.Sprintf("failClosed[%d]", i)
		feature, ok := protocol.ParseFeature(name)
		switch {
		case !ok:
			k.fail(key, name, "one of "+featureNames())
		case c.ModeOf(feature) != ModeActive:
			k.fail(key, name, "a feature whose mode is active")
		}
	}
	k.patterns("optOut.namespaces", c.OptOut.Namespaces)
	k.patterns("optOut.runtimeHandlers", c.OptOut.RuntimeHandlers)
}

// featureNames lists all names for an error text.
func featureNames() string {
	var names []string
	for _, f := range protocol.Features() {
		names = append(names, f.String())
	}
	return strings.Join(names, ", ")
}

func (k *checker) patterns(key string, patterns []string) {
	for i, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			k.fail(fmt.Sprintf("%s[%d]", key, i), pattern, "a shell glob")
		}
	}
}

func (k *checker) limits(l *Limits) {
	least := int64(0) // the default holds some at 0
	if l.OOMScoreAdjMin != nil {
		least = int64(*l.OOMScoreAdjMin)
		k.between("limits.oomScoreAdjMin", least, -1000, 1000)
	}
	k.between("limits.oomScoreAdjMax", int64(l.OOMScoreAdjMax), least, 1000)
	k.between("limits.cpuBurstPercentMax", l.CPUBurstPercentMax, 0, 10000)
	k.between("limits.memoryMinPercentMax", l.MemoryMinPercentMax, 0, 100)
	k.between("limits.memoryLowPercentMax", l.MemoryLowPercentMax, 0, 100)
	k.between("limits.memoryNodePercentMax", l.MemoryNodePercentMax, 0, 100)
	k.between("limits.ioLatencyMin", l.IOLatencyMin, 0, 10_000_000)
	k.between("limits.mbaPercentMax", l.MBAPercentMax, 1, 100)
	k.between("limits.nodeCPUSetMaxPercent", l.NodeCPUSetMaxPercent, 0, 100)
}

func (k *checker) output(c *Node) {
	if !localAddress(c.Metrics.Address) {
		k.fail("metrics.address", c.Metrics.Address, "unix:/path, a loopback host:port or nothing")
	}
	k.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	k.oneOf("log.format", c.Log.Format, "text", "json")
}

// localAddress is true for addresses that only this machine reaches.
func localAddress(address string) bool {
	if address == "" {
		return true
	}
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		return cleanAbsolute(socket)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func (k *checker) times(c *NRI) {
	k.within("requestTimeout", c.RequestTimeout, 100*time.Millisecond, time.Minute)
	if c.Deadline >= c.RequestTimeout {
		k.fail("deadline", c.Deadline, "less than requestTimeout "+c.RequestTimeout.String())
	}
	k.pace(c.Reconnect)
}

func (k *checker) pace(r Reconnect) {
	k.within("reconnect.min", r.Min, 10*time.Millisecond, 10*time.Minute)
	k.within("reconnect.max", r.Max, max(r.Min.Std(), 10*time.Millisecond), 10*time.Minute)
}

func (k *checker) within(key string, v Duration, low, high time.Duration) {
	if v.Std() < low || v.Std() > high {
		k.fail(key, v, fmt.Sprintf("%s..%s", low, high))
	}
}

func (k *checker) between(key string, v, low, high int64) {
	if v < low || v > high {
		k.fail(key, v, fmt.Sprintf("%d..%d", low, high))
	}
}

func (k *checker) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		k.fail(key, value, strings.Join(allowed, ", "))
	}
}

func notNameRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
}
