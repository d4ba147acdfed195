// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrFlag is wrapped by every error about a flag of the command line.
var ErrFlag = errors.New("bad flag")

// KoordletFlag is one flag of upstream's koordlet, by which a DaemonSet that is moved here need not be written anew; one is our own.
type KoordletFlag struct {
	// Name is without dashes; Bool may stand alone.
	Name string
	Bool bool
	// Help is one line: the setting that the flag overrides, or why it has no effect.
	Help string
	// set is nil for a flag that has no effect.
	set func(c *Koordlet, value string) error
}

// Acts reports whether the flag changes anything.
func (f *KoordletFlag) Acts() bool { return f.set != nil }

// KoordletFlags are those that are known, ordered by name.
func KoordletFlags() []KoordletFlag {
	out := slices.Concat(koordletSettings(), koordletIdle())
	slices.SortFunc(out, func(a, b KoordletFlag) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// koordletSettings are the flags that override a setting.
func koordletSettings() []KoordletFlag {
	duration := func(name, key string, at func(*Koordlet) *Duration) KoordletFlag {
		return KoordletFlag{Name: name, Help: "sets " + key, set: func(c *Koordlet, v string) error {
			d, err := time.ParseDuration(v)
			*at(c) = Duration(d)
			return err
		}}
	}
	seconds := func(name, key string, at func(*Koordlet) *Duration) KoordletFlag {
		f := duration(name, key, at)
		inner := f.set
		f.set = func(c *Koordlet, v string) error {
			if _, err := strconv.ParseUint(v, 10, 31); err != nil {
				return err
			}
			return inner(c, v+"s")
		}
		return f
	}
	dir := func(name, key, below string, at func(*Koordlet) *string) KoordletFlag {
		return KoordletFlag{Name: name, Help: "sets " + key, set: func(c *Koordlet, v string) error {
			*at(c) = path.Join(v, below)
			return nil
		}}
	}
	return []KoordletFlag{
		{Name: "feature-gates", Help: "Name=true or false, with commas; see below", set: setGates},
		duration("collect-res-used-interval", "collect.interval", func(c *Koordlet) *Duration { return &c.Collect.Interval }),
		duration("psi-collector-interval", "collect.slowInterval", func(c *Koordlet) *Duration { return &c.Collect.SlowInterval }),
		duration("kubelet-sync-interval", "kubelet.interval", func(c *Koordlet) *Duration { return &c.Kubelet.Interval }),
		duration("prediction-training-interval", "predict.interval", func(c *Koordlet) *Duration { return &c.Predict.Interval }),
		duration("prediction-cold-start-duration", "predict.coldStart", func(c *Koordlet) *Duration { return &c.Predict.ColdStart }),
		duration("prediction-cpu-histogram-decay-halflife", "predict.cpuHalfLife", func(c *Koordlet) *Duration { return &c.Predict.CPUHalfLife }),
		duration("prediction-memory-histogram-decay-halflife", "predict.memoryHalfLife",
			func(c *Koordlet) *Duration { return &c.Predict.MemoryHalfLife }),
		seconds("memory-evict-cool-time-seconds", "evict.memoryCooldown", func(c *Koordlet) *Duration { return &c.Evict.MemoryCooldown }),
		seconds("cpu-evict-cool-time-seconds", "evict.cpuCooldown", func(c *Koordlet) *Duration { return &c.Evict.CPUCooldown }),
		dir("cgroup-root-dir", "host.cgroupRoot", "", func(c *Koordlet) *string { return &c.Host.CgroupRoot }),
		dir("proc-root-dir", "host.proc", "", func(c *Koordlet) *string { return &c.Host.Proc }),
		dir("sys-root-dir", "host.sys", "", func(c *Koordlet) *string { return &c.Host.Sys }),
		dir("sys-fs-root-dir", "host.resctrl, below it", "resctrl", func(c *Koordlet) *string { return &c.Host.Resctrl }),
		dir("hami-core-library-directory-path", "host.hamiLibrary", "", func(c *Koordlet) *string { return &c.Host.HAMiLibrary }),
		{Name: "containerd-endpoint", Help: "sets runtimeEndpoint", set: func(c *Koordlet, v string) error {
			c.RuntimeEndpoint = v
			return nil
		}},
		{Name: "enable-pprof", Bool: true, Help: "sets pprof: profiles are beside the metrics", set: func(c *Koordlet, v string) error {
			yes, err := strconv.ParseBool(v)
			c.Pprof = yes
			return err
		}},
		{Name: "kubelet-insecure-tls", Bool: true, Help: "sets kubelet.skipVerify", set: func(c *Koordlet, v string) error {
			yes, err := strconv.ParseBool(v)
			c.Kubelet.SkipVerify = yes
			return err
		}},
		{Name: koordletCA, Help: "sets kubelet.caFile: what the kubelet's certificate is verified against, which may be the certificate itself; not a flag of upstream's", set: func(c *Koordlet, v string) error {
			c.Kubelet.CAFile = v
			return nil
		}},
		{Name: "disable-query-kubelet-config", Bool: true, Help: "sets kubelet.queryConfig to false", set: func(c *Koordlet, v string) error {
			no, err := strconv.ParseBool(v)
			c.Kubelet.QueryConfig = !no
			return err
		}},
		{Name: "only-evict-by-api", Bool: true, Help: "true sets evict.stopContainers to never", set: func(c *Koordlet, v string) error {
			only, err := strconv.ParseBool(v)
			if only {
				c.Evict.StopContainers = StopNever
			}
			return err
		}},
		{Name: "prediction-safety-margin-percent", Help: "sets predict.safetyMarginPercent", set: func(c *Koordlet, v string) error {
			n, err := strconv.ParseInt(v, 10, 64)
			c.Predict.SafetyMarginPercent = n
			return err
		}},
		{Name: "v", Help: "4 and more sets log.level to debug", set: func(c *Koordlet, v string) error {
			n, err := strconv.Atoi(v)
			if err == nil && n >= 4 {
				c.Log.Level = "debug"
			}
			return err
		}},
	}
}

// koordletIdle are the flags of things that are not here, or are so without being asked.
func koordletIdle() []KoordletFlag {
	const (
		noTSDB  = "no effect: samples stand in memory, 32 MiB at most"
		noHooks = "no effect: koord-nri and koord-runtime-proxy speak to the runtime"
		noKlog  = "no effect: logs go to standard error; see log"
	)
	var out []KoordletFlag
	for _, f := range []struct{ help, names string }{
		{noTSDB,
			"tsdb-path tsdb-retention-duration tsdb-max-bytes tsdb-stripe-size tsdb-wal-segment-size " +
				"tsdb-max-block-chunk-segment-size tsdb-head-chunks-write-buffer-size " +
				"tsdb-min-block-duration tsdb-max-block-duration metric-gc-interval-seconds metric-expire-seconds"},
		{noHooks,
			"runtime-hooks-network runtime-hooks-addr runtime-hooks-failure-policy " +
				"runtime-hooks-plugin-failure-policy runtime-hooks-config-path runtime-hooks-host-endpoint " +
				"runtime-hooks-disable-stages runtime-hooks-reconcile-interval runtime-hooks-nri-socket-path " +
				"runtime-hooks-nri-plugin-name runtime-hooks-nri-plugin-index runtime-hooks-nri-connect-timeout " +
				"runtime-hooks-nri-backoff-duration runtime-hooks-nri-backoff-cap runtime-hooks-nri-backoff-steps " +
				"runtime-hooks-nri-backoff-factor"},
		{noKlog, "log_dir log_file log_file_max_size log_backtrace_at stderrthreshold vmodule"},
		{"no effect: metrics and /events are on metrics.address, never on a network address", "addr pprof-addr"},
		{"no effect: what is not in force any more is found and written by the engine",
			"resource-force-update-seconds reconcile-interval-seconds"},
		{"no effect: every loop runs once a collect.interval",
			"cpu-suppress-interval-seconds cpu-evict-interval-seconds memory-evict-interval-seconds"},
		{"no effect: read with collect.slowInterval",
			"coldpage-collector-interval resctrl-collector-interval"},
		{"no effect: instructions are counted once a minute", "cpi-collector-interval collect-cpi-timewindow"},
		{"no effect: a sample that is older than two intervals is none", "collect-sys-metric-outdated-interval"},
		{"no effect: read once at start",
			"collect-node-cpu-info-interval collect-node-storage-info-interval"},
		{"no effect: the configuration is a file; its ConfigMap is mounted", "configmap-name configmap-namespace"},
		{"no effect: objects are followed by watches", "kube-api-qps kube-api-burst"},
		{"no effect: a watch that breaks is resumed within seconds; the server ends it every few minutes", "watch-timeout"},
		{"no effect: loops are compiled in", "qos-extension-plugins"},
		{"no effect: devices come from koord-device-daemon and the runtime", "pod-resources-proxy-path xpu-device-infos-dir"},
		{"no effect: the kubelet is asked at kubelet.endpoint",
			"kubelet-preferred-address-type kubelet-read-only-port kubelet-sync-timeout"},
		{"no effect: models stand in stateDir/prediction",
			"prediction-checkpoint-filepath prediction-model-expiration-duration " +
				"prediction-model-checkpoint-interval prediction-model-checkpoint-max-per-step"},
		{"no effect: the audit is kept in runDir/audit, some MiB of it",
			"audit-log-dir audit-verbose audit-max-disk-space-mb audit-max-concurrent-readers " +
				"audit-max-events-limit"},
		{"no effect: changes are told when they stand for 10 s; the interval is in NodeMetric's policy",
			"node-topology-sync-interval report-interval"},
		{"no effect: paths of the host are those of host", "var-run-root-dir var-lib-kubelet-dir run-root-dir"},
		{"no effect: the runtime is asked by CRI at runtimeEndpoint",
			"docker-endpoint pouch-endpoint default-runtime-type"},
	} {
		for name := range strings.FieldsSeq(f.names) {
			out = append(out, KoordletFlag{Name: name, Help: f.help})
		}
	}
	for _, f := range [][2]string{
		{"logtostderr", noKlog}, {"alsologtostderr", noKlog}, {"add_dir_header", noKlog}, {"one_output", noKlog}, {"skip_headers", noKlog},
		{"skip_log_headers", noKlog}, {"tsdb-enable-prometheus-metric", noTSDB}, {"enable-nri-runtime-hook", noHooks},
		{"disable-unset-cpu-quota", noHooks}, {"enable-pod-taskids", noHooks},
		{"xpu-enforce-collect-from-device-infos", "no effect: devices come from koord-device-daemon and the runtime"},
		{"enable-node-metric-report", "no effect: NodeMetric is reported where it exists"},
		{"enable-pagecache-collector", "no effect: page cache is always measured"},
		{"enable-resctrl-collector", "no effect: monitoring groups are measured where they exist"},
	} {
		out = append(out, KoordletFlag{Name: f[0], Bool: true, Help: f[1]})
	}
	return out
}

// SetFlags overrides settings by the flags of the command line, by name, and checks the result. notes say what had no
// effect, and why.
func (c *Koordlet) SetFlags(given map[string]string) (notes []string, err error) {
	known := map[string]KoordletFlag{}
	for _, f := range KoordletFlags() {
		known[f.Name] = f
	}
	var errs []error
	if upstreams(given) {
		c.Evict.asUpstream()
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		f, ok := known[name]
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("%w: --%s is not known", ErrFlag, name))
		case !f.Acts():
			notes = append(notes, "--"+name+" has "+f.Help)
		default:
			if err := f.set(c, given[name]); err != nil {
				errs = append(errs, fmt.Errorf("%w: --%s=%.60s: %w", ErrFlag, name, given[name], err))
			}
		}
	}
	if gates := given["feature-gates"]; gates != "" {
		notes = append(notes, gateNotes(gates)...)
	}
	if upstreams(given) && len(c.Evict.Features) == 0 && c.Evict.Mode != ModeOff {
		notes = append(notes, "nobody is evicted, as with upstream's default gates: name what may evict in --feature-gates or in evict.features")
	}
	if len(errs) == 0 {
		errs = c.Validate()
	}
	return notes, errors.Join(errs...)
}

// koordletCA is the one flag that upstream's koordlet has not: it does not verify its kubelet.
const koordletCA = "kubelet-ca-file"

// upstreams reports whether a command line is one of upstream's: any of its flags but those that people give who look for a
// fault.
func upstreams(given map[string]string) bool {
	for name := range given {
		if !slices.Contains([]string{"v", "enable-pprof", "watch-timeout", koordletCA}, name) {
			return true
		}
	}
	return false
}
