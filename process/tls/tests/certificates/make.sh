#!/bin/sh
# Makes the certificates of the tests anew, with OpenSSL. Nothing else trusts their authority.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
touch "$work/index"
printf '[ca]\ndefault_ca=a\n[a]\ndatabase=%s/index\nnew_certs_dir=%s\nrand_serial=yes\ndefault_md=sha256\npolicy=p\ncopy_extensions=copy\n[p]\ncommonName=supplied\n' \
    "$work" "$work" > "$work/ca.conf"

authority() { # NAME
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 -subj "/CN=test authority $1" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign -keyout "$work/$1.key" -out "$1.pem"
}

leaf() { # NAME AUTHORITY BEGIN END ALTERNATIVE-NAMES
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -addext "subjectAltName=$5" \
        -keyout "$1.key" -out "$work/$1.csr"
    openssl ca -batch -notext -config "$work/ca.conf" -cert "$2.pem" -keyfile "$work/$2.key" -startdate "$3" -enddate "$4" \
        -in "$work/$1.csr" -out "$1.pem"
}

authority authority
authority other-authority
leaf server authority 20200101000000Z 21200101000000Z DNS:localhost,IP:127.0.0.1
leaf renewed authority 20200101000000Z 21200101000000Z DNS:localhost,IP:127.0.0.1
leaf expired authority 20200101000000Z 20200201000000Z DNS:localhost,IP:127.0.0.1
leaf other-name authority 20200101000000Z 21200101000000Z DNS:elsewhere.example
