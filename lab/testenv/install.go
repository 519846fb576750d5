package main

// installHint says what to install where there is no Postgres to be had.
func installHint(goos string) string {
	const either = "do one of these, and run the same command again:\n"
	const address = "  or set IDEM_TEST_DATABASE_URL to the address of a role that may create databases"
	switch goos {
	case "darwin":
		return either +
			"  brew install postgresql@18     (no need to start it)\n" +
			"  or start Docker Desktop, OrbStack or Colima\n" + address
	default:
		return either +
			"  Debian, Ubuntu:  apt-get install postgresql\n" +
			"  Fedora, RHEL:    dnf install postgresql-server\n" +
			"  Alpine:          apk add postgresql18\n" +
			"  Arch:            pacman -S postgresql      (no need to start any of them)\n" +
			"  or start a Docker engine\n" + address
	}
}
