// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

// Names of the parts of the proxy lane: what is tested through a CRI or Docker proxy,
// and the peer it is compared with.
const (
	Critest          = "critest"                // critest, ginkgo
	DockerRegistry   = "docker-registry"        // docker-registry
	Containerd16     = "containerd-1.6"         // as Containerd24; has no NRI
	UpstreamProxy    = "upstream-runtime-proxy" // koord-runtime-proxy
	CriDockerd       = "cri-dockerd"            // cri-dockerd 0.4; needs Docker API 1.42 (dockerd 23), so the lane, whose dockerd is Debian's 20.10, leaves it out
	CriDockerd03     = "cri-dockerd-0.3"        // cri-dockerd; the last for dockerd 20.10
	criDockerdModule = "github.com/Mirantis/cri-dockerd"
)

// ProxyLaneNames lists the parts of the proxy lane.
func ProxyLaneNames() []string {
	return []string{Critest, DockerRegistry, Containerd16, UpstreamProxy, CriDockerd03}
}

// proxyLanePart is the recipe table of the lane; ok is false for other lanes' parts.
func proxyLanePart(name string, v map[string]string) (b builder, version string, ok bool) {
	switch name {
	case Critest:
		return critestBuild{CRI: crictl(v), Version: v["CRICTL"], Ginkgo: v["GINKGO"]}, v["CRICTL"], true
	case DockerRegistry:
		return debianTree{Package: "docker-registry", Keep: "usr/bin"}, v["DOCKER_REGISTRY"], true
	case Containerd16:
		return debianTree{Package: "containerd", Keep: "usr/bin"}, v["CONTAINERD_1_6"], true
	case UpstreamProxy:
		return ownModuleBuild{
			Module: koordinatorModule, Version: v["UPSTREAM_KOORDINATOR"], Package: "./cmd/koord-runtime-proxy", File: "koord-runtime-proxy",
		}, v["UPSTREAM_KOORDINATOR"], true
	case CriDockerd:
		return criDockerd(v["CRI_DOCKERD"]), v["CRI_DOCKERD"], true
	case CriDockerd03:
		return criDockerd(v["CRI_DOCKERD_0_3"]), v["CRI_DOCKERD_0_3"], true
	}
	return nil, "", false
}

// criDockerd builds by the module's go.sum: it knows modules that the checksum
// database does not.
func criDockerd(version string) ownModuleBuild {
	return ownModuleBuild{
		Module: criDockerdModule, Version: version, Package: ".", File: "cri-dockerd",
		LDFlags: "-s -w -X " + criDockerdModule + "/cmd/version.Version=" + version,
	}
}
