// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"net/url"
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/strategy"
)

// KindKoordlet is the kind of the node agent's configuration document; its apiVersion is [APIVersion].
const KindKoordlet = "KoordletConfig"

// Koordlet is the configuration of the node agent. Durations are Go durations ("500ms"), paths are absolute.
type Koordlet struct {
	Node
	// NodeName is the name of the Node object. Default empty: the environment's NODE_NAME, else the host's name in lower
	// case, as the kubelet has it.
	NodeName string `json:"nodeName"`
	// RuntimeEndpoint is the runtime's CRI socket; behind koord-runtime-proxy it may be the proxy's. Default
	// /run/containerd/containerd.sock.
	RuntimeEndpoint string `json:"runtimeEndpoint"`
	// Kubelet is where pods with their requests, limits and priorities come from.
	Kubelet Kubelet `json:"kubelet"`
	// APIServer is where NodeSLO and the node come from, and where reports and evictions go.
	APIServer APIServer `json:"apiServer"`
	// Collect says how often the node is measured.
	Collect Collect `json:"collect"`
	// Pressure is the trigger that decides before the next tick.
	Pressure Pressure `json:"pressure"`
	// Evict bounds evictions.
	Evict Evict `json:"evict"`
	// Predict is the prediction of what pods will not use of what they request.
	Predict Predict `json:"predict"`
	// Interference is how long interference detection waits before it judges.
	Interference Interference `json:"interference"`
	// Tune gives containers that are throttled, stall at their memory.high or near their memory limit room that no policy asks for: within
	// their limits and their class, and while the node is calm. It raises what people have set, so it has to be asked for. Default false.
	Tune bool `json:"tune"`
	// Pprof answers /debug/pprof/ beside the metrics, where nobody but this machine can ask (metrics.address); a profile may last 29 s.
	// Default false.
	Pprof bool `json:"pprof"`
	// Reconnect paces reconnection to the runtime and to the servers.
	Reconnect Reconnect `json:"reconnect"`
}

// Kubelet is the kubelet's own API, GET /pods.
type Kubelet struct {
	// Endpoint is its URL; empty asks the API server for the node's pods instead. Default https://127.0.0.1:10250.
	Endpoint string `json:"endpoint"`
	// CAFile is what its certificate is verified against; the certificate itself may stand there (it is often
	// self-signed). Default /var/lib/kubelet/pki/kubelet.crt.
	CAFile string `json:"caFile"`
	// TokenFile holds a bearer token and is read again when it changes. Default
	// /var/run/secrets/kubernetes.io/serviceaccount/token.
	TokenFile string `json:"tokenFile"`
	// CertFile and KeyFile are a client certificate, instead of a token. Default empty.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// SkipVerify does not verify the certificate. It is reported as a degraded state of the node. Default false.
	SkipVerify bool `json:"skipVerify"`
	// Interval between two questions. Range 1s..5m, default 10s.
	Interval Duration `json:"interval"`
	// QueryConfig asks for the kubelet's own configuration (GET /configz): its CPU and topology managers are told in the
	// NodeResourceTopology. Default true.
	QueryConfig bool `json:"queryConfig"`
	// ConfigFile is the kubelet's configuration file, read where that question is refused; the kubelet's flags may say
	// otherwise. Default /var/lib/kubelet/config.yaml.
	ConfigFile string `json:"configFile"`
}

// Ways to the API server.
const (
	APIServerAuto = "auto"
	APIServerOff  = "off"
)

// APIServer is the way to the cluster.
type APIServer struct {
	// Mode is auto (a kubeconfig if one is named, else the pod's service account, else none) or off. Default auto.
	Mode string `json:"mode"`
	// Kubeconfig is a kubeconfig file. It may come after koordlet has begun, and is read again when it has changed. Default empty.
	Kubeconfig string `json:"kubeconfig"`
	// Topology reports the machine's CPUs, memory nodes and share pools in the node's NodeResourceTopology, which the
	// scheduler places pods with CPUs of their own by. Default true.
	Topology bool `json:"topology"`
}

// Collect says how often the node is measured.
type Collect struct {
	// Interval of usage, throttling and the loops. Range 1s..1m, default 1s.
	Interval Duration `json:"interval"`
	// SlowInterval of what changes slowly or costs more: page cache, cold pages, monitoring groups. Range Interval..10m,
	// default 10s.
	SlowInterval Duration `json:"slowInterval"`
}

// Pressure is a PSI trigger (Documentation/accounting/psi.rst): stall time of CPU within a window, of any pod that is not
// batch.
type Pressure struct {
	// Stall that fires. Range 10ms..Window, default 50ms; 0 switches the trigger off.
	Stall Duration `json:"stall"`
	// Window that the kernel looks over. Range 500ms..10s, default 500ms.
	Window Duration `json:"window"`
}

// Evict bounds evictions.
type Evict struct {
	// Mode is active, observe (decided, recorded and counted, nobody is evicted) or off. Default active.
	Mode Mode `json:"mode"`
	// Features are those that may evict: BECPUEvict, BEMemoryEvict, CPUAllocatableEvict, CPUEvict, MemoryAllocatableEvict,
	// MemoryEvict. Each does nothing before the strategy has its threshold. Default all of them; where upstream's flags are
	// given (but for v, enable-pprof and watch-timeout), its default, which is none, and feature-gates says which.
	Features []string `json:"features,omitempty"`
	// StopContainers is when a victim's containers are stopped on the node, past API server and kubelet, and only while less
	// than 3 % of the memory is left: never; evicted (when its eviction was accepted and it has outlived its grace period by
	// 10 s); or danger (also when no API server can be reached; the kubelet may start them again). Default evicted: nothing is
	// stopped that is not being deleted.
	StopContainers string `json:"stopContainers"`
	// GracePeriod is what a pod gets to end by itself. Range 0s..10m, default 30s.
	GracePeriod Duration `json:"gracePeriod"`
	// MemoryCooldown and CPUCooldown are the pauses between two rounds. Range 1s..10m, default 4s and 20s.
	MemoryCooldown Duration `json:"memoryCooldown"`
	CPUCooldown    Duration `json:"cpuCooldown"`
}

// When containers of victims are stopped on the node.
const (
	StopNever   = "never"
	StopEvicted = "evicted"
	StopDanger  = "danger"
)

// Interference is the patience of interference detection. Shorter times find and free sooner, and err more often.
type Interference struct {
	// History is how long a pod must have been measured before it is judged, in 20 samples at least. Range 10s..1h, default 2m.
	History Duration `json:"history"`
	// Trial is how long a suspect is held before the effect is judged. Range 3s..5m, default 20s.
	Trial Duration `json:"trial"`
	// Calm must pass before a guilty pod gets back twice as much, in steps of a sixth of it. Range 6s..1h, default 1m.
	Calm Duration `json:"calm"`
}

// DefaultKoordlet is the configuration of the node agent of an empty file.
func DefaultKoordlet() Koordlet {
	return Koordlet{
		Node:            defaultNode("unix:/run/koord-rt/koordlet-metrics.sock"),
		RuntimeEndpoint: "/run/containerd/containerd.sock",
		Kubelet: Kubelet{
			Endpoint: "https://127.0.0.1:10250", CAFile: "/var/lib/kubelet/pki/kubelet.crt",
			TokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token", Interval: Duration(10 * time.Second),
			QueryConfig: true, ConfigFile: "/var/lib/kubelet/config.yaml",
		},
		APIServer: APIServer{Mode: APIServerAuto, Topology: true},
		Collect:   Collect{Interval: Duration(time.Second), SlowInterval: Duration(10 * time.Second)},
		Pressure:  Pressure{Stall: Duration(50 * time.Millisecond), Window: Duration(500 * time.Millisecond)},
		Evict: Evict{
			Mode: ModeActive, StopContainers: StopEvicted, GracePeriod: Duration(30 * time.Second),
			MemoryCooldown: Duration(4 * time.Second), CPUCooldown: Duration(20 * time.Second),
		},
		Predict: Predict{
			Enable: true, Interval: Duration(time.Minute), ColdStart: Duration(24 * time.Hour), SafetyMarginPercent: 10,
			CPUHalfLife: Duration(12 * time.Hour), MemoryHalfLife: Duration(24 * time.Hour), CPUPercentile: 95, MemoryPercentile: 98,
		},
		Interference: Interference{History: Duration(2 * time.Minute), Trial: Duration(20 * time.Second), Calm: Duration(time.Minute)},
		Reconnect:    Reconnect{Min: Duration(500 * time.Millisecond), Max: Duration(30 * time.Second)},
	}
}

// RuntimePath is the path of RuntimeEndpoint.
func (c *Koordlet) RuntimePath() string { return socketPath(c.RuntimeEndpoint) }

// koordletDocument is the KoordletConfig document.
type koordletDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Koordlet
	// Strategy is a bare NodeSLO spec.
	Strategy *strategy.Wire `json:"strategy"`
}

// LoadKoordlet reads a YAML stream of at most one KoordletConfig and at most one NodeSLO document, as [LoadNRI] does. What
// the stream does not say is [DefaultKoordlet].
func LoadKoordlet(data []byte) (Koordlet, *strategy.Spec, error) {
	doc := koordletDocument{Koordlet: DefaultKoordlet()}
	spec, err := stream(data, KindKoordlet, &doc, func() []error { return doc.Koordlet.Validate() }, &doc.Strategy)
	if err != nil {
		return Koordlet{}, nil, err
	}
	return doc.Koordlet, spec, nil
}

// Validate checks every setting. Each error names the key, the value and what is wanted; their order is fixed.
func (c *Koordlet) Validate() []error {
	k := &checker{}
	if len(c.NodeName) > 253 || strings.ContainsFunc(c.NodeName, notNameRune) {
		k.fail("nodeName", c.NodeName, "the name of a Node object")
	}
	k.socket("runtimeEndpoint", c.RuntimeEndpoint)
	k.kubelet(&c.Kubelet)
	k.oneOf("apiServer.mode", c.APIServer.Mode, APIServerAuto, APIServerOff)
	k.file("apiServer.kubeconfig", c.APIServer.Kubeconfig, true)
	k.within("collect.interval", c.Collect.Interval, time.Second, time.Minute)
	k.within("collect.slowInterval", c.Collect.SlowInterval, max(c.Collect.Interval.Std(), time.Second), 10*time.Minute)
	k.within("pressure.window", c.Pressure.Window, 500*time.Millisecond, 10*time.Second)
	if c.Pressure.Stall != 0 {
		k.within("pressure.stall", c.Pressure.Stall, 10*time.Millisecond, max(c.Pressure.Window.Std(), 10*time.Millisecond))
	}
	k.oneOf("evict.mode", string(c.Evict.Mode), string(ModeActive), string(ModeObserve), string(ModeOff))
	for _, name := range c.Evict.Features {
		k.oneOf("evict.features", name, evictGates[:]...)
	}
	k.oneOf("evict.stopContainers", c.Evict.StopContainers, StopNever, StopEvicted, StopDanger)
	k.within("evict.gracePeriod", c.Evict.GracePeriod, 0, 10*time.Minute)
	k.within("evict.memoryCooldown", c.Evict.MemoryCooldown, time.Second, 10*time.Minute)
	k.within("evict.cpuCooldown", c.Evict.CPUCooldown, time.Second, 10*time.Minute)
	k.predict(&c.Predict, c.Collect.Interval.Std())
	k.within("interference.history", c.Interference.History, 10*time.Second, time.Hour)
	k.within("interference.trial", c.Interference.Trial, 3*time.Second, 5*time.Minute)
	k.within("interference.calm", c.Interference.Calm, 6*time.Second, time.Hour)
	k.node(&c.Node)
	k.pace(c.Reconnect)
	return k.errs
}

func (k *checker) kubelet(c *Kubelet) {
	if c.Endpoint != "" {
		u, err := url.Parse(c.Endpoint)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
			k.fail("kubelet.endpoint", c.Endpoint, "https://host:port, or nothing")
		}
	}
	k.file("kubelet.caFile", c.CAFile, true)
	k.file("kubelet.tokenFile", c.TokenFile, true)
	k.file("kubelet.certFile", c.CertFile, true)
	k.file("kubelet.keyFile", c.KeyFile, true)
	if (c.CertFile == "") != (c.KeyFile == "") {
		k.fail("kubelet.keyFile", c.KeyFile, "a key for kubelet.certFile, and none without it")
	}
	k.within("kubelet.interval", c.Interval, time.Second, 5*time.Minute)
	k.file("kubelet.configFile", c.ConfigFile, true)
}
