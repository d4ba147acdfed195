// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package config

import (
	"strings"
	"time"

	"github.com/koord-rt/koord-rt/api/protocol"
)

// KindProxy is the kind of the runtime proxy's configuration document; its apiVersion is [APIVersion].
const KindProxy = "ProxyConfig"

// BackendMode is the protocol of the runtime behind the proxy.
type BackendMode string

// The modes, spelled as upstream's flag --backend-runtime-mode has them.
const (
	// BackendContainerd is any runtime that speaks CRI (containerd, CRI-O, cri-dockerd).
	BackendContainerd BackendMode = "Containerd"
	// BackendDocker is the Docker Engine API.
	BackendDocker BackendMode = "Docker"
)

// Proxy is the configuration of koord-runtime-proxy. Durations are Go durations ("500ms"), paths are absolute; sockets
// may be written as a path or as unix:///path.
type Proxy struct {
	Node
	// Endpoint is the socket that the kubelet connects to. Flag --koord-runtimeproxy-endpoint. Default
	// /var/run/koord-runtimeproxy/runtimeproxy.sock.
	Endpoint string `json:"endpoint"`
	// RuntimeEndpoint is the runtime's socket: CRI, or the Docker Engine API in mode Docker. Flag
	// --remote-runtime-service-endpoint. Default /var/run/containerd/containerd.sock.
	RuntimeEndpoint string `json:"runtimeEndpoint"`
	// ImageEndpoint is the socket of the image service where it is another one. Flag --remote-image-service-endpoint.
	// Default empty (RuntimeEndpoint).
	ImageEndpoint string `json:"imageEndpoint"`
	// BackendMode is Containerd (CRI) or Docker. Flag --backend-runtime-mode. Default Containerd.
	BackendMode BackendMode `json:"backendMode"`
	// Hooks is about external hook servers.
	Hooks ProxyHooks `json:"hooks"`
	// Reconnect paces reconnection to the runtime.
	Reconnect Reconnect `json:"reconnect"`
}

// DefaultProxy is the configuration of the proxy of an empty file; what upstream's proxy has a flag for has its default.
func DefaultProxy() Proxy {
	return Proxy{
		Node:            defaultNode("unix:/run/koord-rt/proxy-metrics.sock"),
		Endpoint:        "/var/run/koord-runtimeproxy/runtimeproxy.sock",
		RuntimeEndpoint: "/var/run/containerd/containerd.sock",
		BackendMode:     BackendContainerd,
		Hooks: ProxyHooks{
			Dir: "/etc/runtime/hookserver.d", ServerKey: protocol.LabelSkipHookServer, ServerValue: "true",
			Merge: HookYields,
		},
		Reconnect: Reconnect{Min: Duration(500 * time.Millisecond), Max: Duration(30 * time.Second)},
	}
}

// ListenPath is the path of Endpoint.
func (c *Proxy) ListenPath() string { return socketPath(c.Endpoint) }

// RuntimePath is the path of RuntimeEndpoint.
func (c *Proxy) RuntimePath() string { return socketPath(c.RuntimeEndpoint) }

// ImagePath is the path of the image service's socket, the runtime's where none is given.
func (c *Proxy) ImagePath() string {
	if c.ImageEndpoint == "" {
		return c.RuntimePath()
	}
	return socketPath(c.ImageEndpoint)
}

// socketPath is the path of a socket written as a path, as unix:///path or as unix:/path.
func socketPath(endpoint string) string {
	p, ok := strings.CutPrefix(endpoint, "unix:")
	if ok && strings.HasPrefix(p, "//") {
		p = p[2:]
	}
	return p
}
